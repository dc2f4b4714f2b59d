/* json_driver.c - the events of base/json_reader.h for a script: reads texts from standard input,
 * each after its length (4 bytes, little-endian), and prints a line for each: its events, or "bad"
 * and why. */
#include <stdio.h>
#include <stdlib.h>

#include "base/json_reader.h"

static void print_hex(char letter, const bnet_str *s)
{
    putchar(letter);
    for (size_t i = 0; i < s->n; i++)
        printf("%02x", (unsigned char)s->data[i]);
}

static void print_event(const bnet_json_reader *r)
{
    static const char letters[] = "..{}[]ksirtfn";
    bnet_str text = {0};
    if (r->event == BNET_JSON_KEY || r->event == BNET_JSON_STRING) {
        bnet_json_text(r, &text);
        print_hex(letters[r->event], &text);
        bnet_str_free(&text);
    } else if (r->event == BNET_JSON_INTEGER || r->event == BNET_JSON_REAL)
        printf("%c%.*s", letters[r->event], (int)r->raw.n, r->raw.data);
    else
        putchar(letters[r->event]);
    putchar(' ');
}

/* First to the end, so that nothing is printed of a text that turns out bad. */
static void run(const char *data, size_t n)
{
    char why[256];
    const char *wrong = bnet_json_measure(data, n, SIZE_MAX, why, sizeof why);
    if (wrong) {
        printf("bad %s: %s\n", wrong, why);
        return;
    }
    bnet_json_reader r = bnet_json_reader_of(data, n);
    while (bnet_json_next(&r) != BNET_JSON_END)
        print_event(&r);
    putchar('\n');
}

int main(void)
{
    unsigned char length[4];
    while (fread(length, 1, 4, stdin) == 4) {
        size_t n = bnet_u32(length);
        char *data = malloc(n ? n : 1); /* of exactly this size: a sanitizer sees its end */
        if (!data || fread(data, 1, n, stdin) != n)
            return 1;
        run(data, n);
        free(data);
    }
    return 0;
}
