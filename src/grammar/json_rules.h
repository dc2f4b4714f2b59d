/* json_rules.h - the rules of JSON itself, as models are to write it: strings without raw control
 * characters, numbers of bounded length, white space of bounded length between the parts. */
#ifndef BNET_JSON_RULES_H
#define BNET_JSON_RULES_H

#include "grammar/charset.h"

typedef struct bnet_json_rules {
    uint32_t space;     /* nothing, a blank, or a line's end and up to 32 blanks */
    uint32_t character; /* one of a string, escaped or not */
    uint32_t string, integer, number, boolean, null;
    uint32_t value, object, array; /* of any kind */
    uint32_t hex4;                 /* four digits behind \u; surrogates come in pairs */
    uint32_t bare;                 /* a character that needs no escape */
} bnet_json_rules;

void bnet_json_rules_write(bnet_program *p, bnet_json_rules *r);
/* A new rule with a name for messages. */
uint32_t bnet_rule_named(bnet_program *p, const char *name);
/* ":" and at most one blank; "," and white space. */
void bnet_json_colon(bnet_program *p);
void bnet_json_comma(bnet_program *p, const bnet_json_rules *r);
/* The digit before this zero to so many times, as a part of a rule: lo..hi repeated. */
void bnet_json_digits(bnet_program *p, unsigned lo, unsigned hi, uint32_t min, uint32_t max);

#endif
