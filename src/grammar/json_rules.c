/* json_rules.c - JSON as a program. */
#include "grammar/json_rules.h"
#include "grammar/grammar.h"

/* 18 digits are within 64 bits; readers of JSON refuse larger integers. */
enum { INDENT = 32, INTEGER_DIGITS = 18, FRACTION_DIGITS = 20, EXPONENT_DIGITS = 2 };

uint32_t bnet_rule_named(bnet_program *p, const char *name)
{
    return bnet_program_rule(p, name, strlen(name));
}

void bnet_json_digits(bnet_program *p, unsigned lo, unsigned hi, uint32_t min, uint32_t max)
{
    size_t loop = bnet_program_loop(p);
    bnet_program_byte(p, lo, hi);
    bnet_program_loop_end(p, loop, min, max);
}

void bnet_json_colon(bnet_program *p)
{
    bnet_program_text(p, ":", 1);
    bnet_json_digits(p, ' ', ' ', 0, 1);
}

void bnet_json_comma(bnet_program *p, const bnet_json_rules *r)
{
    bnet_program_text(p, ",", 1);
    bnet_program_call(p, r->space, 1, 1);
}

static void write_space(bnet_program *p, const bnet_json_rules *r)
{
    bnet_program_begin(p, r->space);
    bnet_choice c = bnet_program_either(p);
    bnet_program_or(p, &c);
    bnet_program_text(p, " ", 1);
    bnet_program_or(p, &c);
    bnet_program_text(p, "\n", 1);
    bnet_json_digits(p, ' ', ' ', 0, INDENT);
    bnet_program_close(p, &c);
    bnet_program_end(p);
}

/* ---- strings ---- */

/* One byte of those in the text. */
static void one_of(bnet_program *p, const char *bytes)
{
    bnet_choice c = bnet_program_either(p);
    for (const char *b = bytes; *b; b++) {
        if (b != bytes)
            bnet_program_or(p, &c);
        bnet_program_text(p, b, 1);
    }
    bnet_program_close(p, &c);
}

static void hex_digits(bnet_program *p, uint32_t n)
{
    size_t loop = bnet_program_loop(p);
    bnet_choice c = bnet_program_either(p);
    bnet_program_byte(p, '0', '9');
    bnet_program_or(p, &c);
    bnet_program_byte(p, 'a', 'f');
    bnet_program_or(p, &c);
    bnet_program_byte(p, 'A', 'F');
    bnet_program_close(p, &c);
    bnet_program_loop_end(p, loop, n, n);
}

static void write_hex4(bnet_program *p, const bnet_json_rules *r)
{
    bnet_program_begin(p, r->hex4);
    bnet_choice c = bnet_program_either(p);
    one_of(p, "0123456789abcefABCEF");
    hex_digits(p, 3);
    bnet_program_or(p, &c);
    one_of(p, "dD");
    bnet_program_byte(p, '0', '7');
    hex_digits(p, 2);
    bnet_program_or(p, &c);
    one_of(p, "dD");
    one_of(p, "89abAB");
    hex_digits(p, 2);
    bnet_program_text(p, "\\u", 2);
    one_of(p, "dD");
    one_of(p, "cdefCDEF");
    hex_digits(p, 2);
    bnet_program_close(p, &c);
    bnet_program_end(p);
}

static void write_bare(bnet_program *p, const bnet_json_rules *r)
{
    bnet_charset set = {0};
    bnet_charset_add(&set, ' ', '!');
    bnet_charset_add(&set, '#', '[');
    bnet_charset_add(&set, ']', BNET_LAST_CHAR);
    bnet_program_begin(p, r->bare);
    bnet_charset_write(&set, p);
    bnet_program_end(p);
    bnet_charset_free(&set);
}

static void write_strings(bnet_program *p, const bnet_json_rules *r)
{
    write_hex4(p, r);
    write_bare(p, r);
    bnet_program_begin(p, r->character);
    bnet_choice c = bnet_program_either(p);
    bnet_program_call(p, r->bare, 1, 1);
    bnet_program_or(p, &c);
    bnet_program_text(p, "\\", 1);
    one_of(p, "\"\\/bfnrt");
    bnet_program_or(p, &c);
    bnet_program_text(p, "\\u", 2);
    bnet_program_call(p, r->hex4, 1, 1);
    bnet_program_close(p, &c);
    bnet_program_end(p);
    bnet_program_begin(p, r->string);
    bnet_program_text(p, "\"", 1);
    bnet_program_call(p, r->character, 0, BNET_GRAM_MANY);
    bnet_program_text(p, "\"", 1);
    bnet_program_end(p);
}

/* ---- numbers and words ---- */

static void write_integer(bnet_program *p, const bnet_json_rules *r)
{
    bnet_program_begin(p, r->integer);
    bnet_json_digits(p, '-', '-', 0, 1);
    bnet_choice c = bnet_program_either(p);
    bnet_program_text(p, "0", 1);
    bnet_program_or(p, &c);
    bnet_program_byte(p, '1', '9');
    bnet_json_digits(p, '0', '9', 0, INTEGER_DIGITS - 1);
    bnet_program_close(p, &c);
    bnet_program_end(p);
}

static void write_number(bnet_program *p, const bnet_json_rules *r)
{
    bnet_program_begin(p, r->number);
    bnet_program_call(p, r->integer, 1, 1);
    size_t loop = bnet_program_loop(p);
    bnet_program_text(p, ".", 1);
    bnet_json_digits(p, '0', '9', 1, FRACTION_DIGITS);
    bnet_program_loop_end(p, loop, 0, 1);
    loop = bnet_program_loop(p);
    one_of(p, "eE");
    size_t sign = bnet_program_loop(p);
    one_of(p, "+-");
    bnet_program_loop_end(p, sign, 0, 1);
    bnet_json_digits(p, '0', '9', 1, EXPONENT_DIGITS);
    bnet_program_loop_end(p, loop, 0, 1);
    bnet_program_end(p);
}

static void write_words(bnet_program *p, const bnet_json_rules *r)
{
    bnet_program_begin(p, r->boolean);
    bnet_choice c = bnet_program_either(p);
    bnet_program_text(p, "true", 4);
    bnet_program_or(p, &c);
    bnet_program_text(p, "false", 5);
    bnet_program_close(p, &c);
    bnet_program_end(p);
    bnet_program_begin(p, r->null);
    bnet_program_text(p, "null", 4);
    bnet_program_end(p);
}

/* ---- values of any kind ---- */

/* Brackets with any number of `item` between them. */
static void write_list(bnet_program *p, const bnet_json_rules *r, uint32_t rule, uint32_t item,
                       const char *brackets)
{
    bnet_program_begin(p, rule);
    bnet_program_text(p, brackets, 1);
    bnet_program_call(p, r->space, 1, 1);
    size_t all = bnet_program_loop(p);
    bnet_program_call(p, item, 1, 1);
    size_t more = bnet_program_loop(p);
    bnet_json_comma(p, r);
    bnet_program_call(p, item, 1, 1);
    bnet_program_loop_end(p, more, 0, BNET_GRAM_MANY);
    bnet_program_call(p, r->space, 1, 1);
    bnet_program_loop_end(p, all, 0, 1);
    bnet_program_text(p, brackets + 1, 1);
    bnet_program_end(p);
}

static void write_values(bnet_program *p, const bnet_json_rules *r)
{
    const uint32_t kinds[] = {r->string, r->number, r->object, r->array, r->boolean, r->null};
    uint32_t pair = bnet_rule_named(p, "pair");
    write_list(p, r, r->object, pair, "{}");
    write_list(p, r, r->array, r->value, "[]");
    bnet_program_begin(p, pair);
    bnet_program_call(p, r->string, 1, 1);
    bnet_json_colon(p);
    bnet_program_call(p, r->value, 1, 1);
    bnet_program_end(p);
    bnet_program_begin(p, r->value);
    bnet_choice c = bnet_program_either(p);
    for (size_t i = 0; i < BNET_COUNT(kinds); i++) {
        if (i)
            bnet_program_or(p, &c);
        bnet_program_call(p, kinds[i], 1, 1);
    }
    bnet_program_close(p, &c);
    bnet_program_end(p);
}

void bnet_json_rules_write(bnet_program *p, bnet_json_rules *r)
{
    *r = (bnet_json_rules){.space = bnet_rule_named(p, "space"),
                           .character = bnet_rule_named(p, "character"),
                           .string = bnet_rule_named(p, "string"),
                           .integer = bnet_rule_named(p, "integer"),
                           .number = bnet_rule_named(p, "number"),
                           .boolean = bnet_rule_named(p, "boolean"),
                           .null = bnet_rule_named(p, "null"),
                           .value = bnet_rule_named(p, "value"),
                           .object = bnet_rule_named(p, "object"),
                           .array = bnet_rule_named(p, "array"),
                           .hex4 = bnet_rule_named(p, "hex4"),
                           .bare = bnet_rule_named(p, "bare")};
    write_space(p, r);
    write_strings(p, r);
    write_integer(p, r);
    write_number(p, r);
    write_words(p, r);
    write_values(p, r);
}

void bnet_json_object_write(bnet_program *p)
{
    bnet_json_rules r;
    bnet_json_rules_write(p, &r);
    p->root = r.object;
}
