/* json_numbers.c - a text in which each whole number beyond 64 bits has got ".0". */
#include "http/json_numbers.h"

#include <stdlib.h>
#include <string.h>

#include "http/short_memory.h"

static const char digits[] = "0123456789";
static const char largest[] = "9223372036854775807";

/* How many of these bytes are digits. */
static size_t n_digits(const char *text, size_t n)
{
    size_t i = 0;
    while (i < n && text[i] && strchr(digits, text[i]))
        i++;
    return i;
}

/* Is this a whole number, of n digits, that 64 bits may not have? -2^63 counts as one, too. */
static bool is_beyond(const char *text, size_t n, char next)
{
    size_t most = sizeof largest - 1;
    bool large = n > most || (n == most && memcmp(text, largest, n) > 0);
    return large && next != '.' && next != 'e' && next != 'E';
}

/* Bytes of what stands here: of a string or a number all of it. */
static size_t token_at(const char *text, size_t n, bool *beyond)
{
    size_t i = 1;
    *beyond = false;
    if (text[0] == '"') {
        while (i < n && text[i] != '"')
            i += text[i] == '\\' ? 2 : 1;
        return i < n ? i + 1 : n;
    }
    size_t whole = n_digits(text, n);
    *beyond = is_beyond(text, whole, whole < n ? text[whole] : '\0');
    while (whole && whole < n && text[whole] && strchr("0123456789.eE+-", text[whole]))
        whole++; /* its fraction and exponent, whose digits are no number */
    return whole ? whole : 1;
}

/* Copies the text to `to`, unless that is NULL. Returns how long it becomes. */
static size_t widen(const char *text, size_t n, char *to)
{
    size_t out = 0;
    for (size_t i = 0, k; i < n; i += k) {
        bool beyond;
        k = token_at(text + i, n - i, &beyond);
        if (to)
            memcpy(to + out, text + i, k);
        if (to && beyond)
            memcpy(to + out + k, ".0", 2);
        out += k + (beyond ? 2 : 0);
    }
    return out;
}

json_t *srv_json_load_wide(const char *text, size_t n, size_t flags, json_error_t *error)
{
    json_t *value = srv_json_load(text, n, flags, error);
    if (value || srv_memory_short() || json_error_code(error) != json_error_numeric_overflow)
        return value;
    size_t room = widen(text, n, NULL);
    char *wide = malloc(room);
    if (!wide) {
        srv_memory_lost();
        return NULL;
    }
    widen(text, n, wide);
    value = srv_json_load(wide, room, flags, error);
    free(wide);
    return value;
}
