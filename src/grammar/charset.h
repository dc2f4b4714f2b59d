/* charset.h - a set of characters, as a class in brackets describes it, written as the bytes of its
 * UTF-8. Hides: how ranges of characters become ranges of bytes. */
#ifndef BNET_CHARSET_H
#define BNET_CHARSET_H

#include "grammar/program.h"

#define BNET_LAST_CHAR 0x10ffffu

typedef struct bnet_chars {
    uint32_t lo, hi;
} bnet_chars;

/* Zero-initialise; free with bnet_charset_free. Lone surrogates are no characters and never in. */
typedef struct bnet_charset {
    bnet_chars *ranges;
    size_t n, cap;
    bool failed; /* no memory */
} bnet_charset;

void bnet_charset_free(bnet_charset *s);
void bnet_charset_add(bnet_charset *s, uint32_t lo, uint32_t hi);
/* Puts the ranges in order, none touching another. */
void bnet_charset_tidy(bnet_charset *s);
/* Every character that is not in it; tidies. */
void bnet_charset_invert(bnet_charset *s);
/* The characters of lo..hi alone; tidies. */
void bnet_charset_within(bnet_charset *s, uint32_t lo, uint32_t hi);
/* Takes a character out; tidies. */
void bnet_charset_remove(bnet_charset *s, uint32_t c);
bool bnet_charset_has(const bnet_charset *s, uint32_t c);
/* Writes one character of a tidy set that is not empty. */
void bnet_charset_write(const bnet_charset *s, bnet_program *p);

#endif
