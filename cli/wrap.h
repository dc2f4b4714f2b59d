/* wrap.h - text on its way to a terminal, broken between words. */
#ifndef BITNET_CLI_WRAP_H
#define BITNET_CLI_WRAP_H

#include "cli.h"

typedef struct wrap {
    buffer word;        /* begun and not yet out */
    size_t word_column; /* how many columns it takes */
    size_t column;      /* where the cursor stands */
    size_t n_spaces;    /* before the word; forgotten where the line is broken */
    size_t indent;      /* columns left free on lines that a break begins */
} wrap;

/* Text follows at this column; the indent stays as it is. */
void wrap_begin(wrap *w, size_t column);
/* Adds to out what of the bytes (whole characters) can be shown on lines of `width` columns: all
 * but a last word that may go on. */
void wrap_add(wrap *w, size_t width, const char *bytes, size_t n, buffer *out);
/* No text follows: adds that last word too, and spaces at the end. */
void wrap_end(wrap *w, size_t width, buffer *out);
/* Both at once, to standard output: in lines of the terminal if it is one and `on`, else as it is.
 */
bool wrap_write(wrap *w, bool on, const char *bytes, size_t n, bool last);
void wrap_free(wrap *w);

#endif
