/* event_form.h - an event of a stream of which only one text changes: everything around it is
 * written once. */
#ifndef SRV_EVENT_FORM_H
#define SRV_EVENT_FORM_H

#include "http/exchange.h"
#include "ask/textbuf.h"

/* Zero-initialise; free with srv_form_free. */
typedef struct srv_form {
    srv_textbuf event; /* what comes before the text, then the text of the latest event */
    srv_textbuf after; /* what follows it */
    size_t n_before;   /* bytes; 0: there is no form */
} srv_form;

/* Makes the form of the event "data: VALUE\n\n", where the text that changes is the last `mark`.
 * Takes `value` over. False: out of memory. */
bool srv_form_open(srv_form *f, json_t *value, const char *mark);
void srv_form_free(srv_form *f);
/* Writes the event with this text, which is valid UTF-8. False: stop. */
bool srv_form_write(srv_form *f, srv_exchange *x, const char *text, size_t n_text);

#endif
