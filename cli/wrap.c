/* wrap.c - word wrap of a stream. A word waits until it ends, since only then is it known whether
 * it fits; one longer than a line is broken where the line ends. Wide characters (of scripts
 * without spaces) are words of their own. */
#include "wrap.h"

#include <string.h>

#include "terminal.h"

enum { TAB = 8 };

void wrap_begin(wrap *w, size_t column)
{
    w->word.n = w->word_column = w->n_spaces = 0;
    w->column = column;
}

void wrap_free(wrap *w)
{
    free_buffer(&w->word);
}

static void break_line(wrap *w, buffer *out)
{
    text_puts(out, "\n");
    w->column = w->n_spaces = 0;
}

static void put_spaces(wrap *w, size_t width, buffer *out)
{
    for (; w->n_spaces && w->column < width; w->n_spaces--, w->column++)
        text_puts(out, " ");
    w->n_spaces = 0;
}

static void put_word(wrap *w, size_t width, buffer *out)
{
    if (w->word.n == 0)
        return;
    if (w->column && w->column + w->n_spaces + w->word_column > width) {
        break_line(w, out);
        w->n_spaces = w->indent + w->word_column <= width ? w->indent : 0;
    }
    put_spaces(w, width, out);
    text_add(out, w->word.data, w->word.n);
    w->column += w->word_column;
    w->word.n = w->word_column = 0;
}

static void put_tab(wrap *w, size_t width, buffer *out)
{
    put_spaces(w, width, out);
    text_puts(out, "\t");
    w->column += TAB - w->column % TAB;
}

static void put_character(wrap *w, size_t width, const char *s, size_t len, size_t columns,
                          buffer *out)
{
    bool wide = columns > 1;
    if (wide || w->word_column + columns > width)
        put_word(w, width, out);
    text_add(&w->word, s, len);
    w->word_column += columns;
    if (wide && w->word_column == columns)
        put_word(w, width, out);
}

void wrap_add(wrap *w, size_t width, const char *bytes, size_t n, buffer *out)
{
    for (size_t i = 0, len; i < n; i += len) {
        size_t columns = terminal_columns(bytes + i, n - i, &len);
        char c = bytes[i];
        if (c != ' ' && c != '\n' && c != '\t') {
            put_character(w, width, bytes + i, len, columns, out);
            continue;
        }
        put_word(w, width, out);
        if (c == ' ')
            w->n_spaces++;
        else if (c == '\t')
            put_tab(w, width, out);
        else
            break_line(w, out);
    }
}

void wrap_end(wrap *w, size_t width, buffer *out)
{
    put_word(w, width, out);
    put_spaces(w, width, out);
}

bool wrap_write(wrap *w, bool on, const char *bytes, size_t n, bool last)
{
    size_t width = on ? terminal_width() : 0;
    buffer lines = {0};
    if (width == 0)
        return out_write(bytes, n);
    if (terminal_was_left()) /* on a line of its own again */
        w->column = w->n_spaces = 0;
    wrap_add(w, width, bytes, n, &lines);
    if (last)
        wrap_end(w, width, &lines);
    bool ok = out_write(lines.data, lines.n);
    free_buffer(&lines);
    return ok;
}
