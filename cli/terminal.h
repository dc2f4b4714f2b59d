/* terminal.h - the terminal: how wide it is, what it says besides keys, and text broken
 * between words. */
#ifndef BITNET_CLI_TERMINAL_H
#define BITNET_CLI_TERMINAL_H

#include "cli.h"

typedef enum terminal_event {
    TERMINAL_INPUT,       /* standard input can be read */
    TERMINAL_INTERRUPTED, /* see interrupted() */
    TERMINAL_RESIZED,
    TERMINAL_STOP,      /* Ctrl-Z, while terminal_catch_stop: put it in order, then terminal_stop */
    TERMINAL_CONTINUED, /* another program may have used it meanwhile */
} terminal_event;

/* From now on the events are noticed; and text is UTF-8, whatever the locale says. */
void terminal_watch(void);
terminal_event terminal_wait(void);
void terminal_catch_stop(bool on); /* and forgets earlier events: the caller draws from here on */
void terminal_stop(void);          /* returns when the program is continued */
/* Was the program continued since this was asked last? Then the cursor stands elsewhere. */
bool terminal_was_left(void);

/* While a reply is written keys are not shown: they wait for the next line. Ctrl-Z shows them. */
void terminal_quiet(bool on);
void terminal_mark_pastes(bool on); /* the terminal is asked to mark what is pasted */
/* As it was before it was asked for anything: for handlers that end the program or stop it. */
void terminal_restore(void);

size_t terminal_width(void); /* columns of standard output; 0: it is no terminal */
/* Columns of the character at s[0..n), whose length goes to *len (n > 0). */
size_t terminal_columns(const char *s, size_t n, size_t *len);
bool terminal_has_style(void); /* standard error can show dim text, and NO_COLOR is not set */

/* ---- text on its way to a terminal, broken between words ---- */

typedef struct wrap {
    buffer word;        /* begun and not yet out */
    size_t word_column; /* how many columns it takes */
    size_t column;      /* where the cursor stands */
    size_t n_spaces;    /* before the word; forgotten where the line is broken */
    size_t indent;      /* columns left free on lines that a break begins */
} wrap;

/* Text follows at this column; the indent stays as it is. */
void wrap_begin(wrap *w, size_t column);
/* Adds a whole text to out, in lines of `width` columns, and frees w. */
void wrap_all(wrap *w, size_t width, const char *text, buffer *out);
/* Writes part of a text to standard output, in lines of the terminal if it is one and `on`, else as
 * it is; a last word that may continue waits, unless no text follows (`last`). */
bool wrap_write(wrap *w, bool on, const char *bytes, size_t n, bool last);
void wrap_free(wrap *w);

#endif
