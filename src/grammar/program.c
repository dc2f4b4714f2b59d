/* program.c - writing instructions, with bounds on how many there are. */
#include "grammar/program.h"

#include <stdio.h>

void bnet_program_free(bnet_program *p)
{
    bnet_free(p->code);
    bnet_free(p->rules);
    bnet_str_free(&p->names);
    p->code = NULL;
    p->rules = NULL;
}

void bnet_program_fail(bnet_program *p, bitnet_status status, const char *fmt, ...)
{
    char text[BITNET_MESSAGE_MAX];
    va_list args;
    if (p->status != BITNET_OK)
        return;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    p->status = bnet_fail(p->err, status, "grammar: %s", text);
}

static void no_memory(bnet_program *p)
{
    if (p->status == BITNET_OK)
        p->status = bnet_no_memory(p->err, "grammar");
}

/* Appends an instruction; returns where it stands. */
static size_t put(bnet_program *p, bnet_gram_op op)
{
    if (p->status != BITNET_OK)
        return 0;
    if (p->n_code >= BNET_GRAM_CODE) {
        bnet_program_fail(p, BITNET_ARGUMENT,
                          "it needs more than %zu instructions; make it smaller", BNET_GRAM_CODE);
        return 0;
    }
    if (!bnet_grow(&p->code, &p->cap_code, p->n_code + 1, sizeof *p->code)) {
        no_memory(p);
        return 0;
    }
    p->code[p->n_code] = op;
    return p->n_code++;
}

static void aim(bnet_program *p, size_t from)
{
    if (p->status == BITNET_OK)
        p->code[from].arg = (int32_t)(p->n_code - from);
}

/* ---- rules ---- */

static uint32_t add_rule(bnet_program *p, bnet_gram_rule rule)
{
    if (p->status != BITNET_OK)
        return 0;
    if (p->n_rules >= BNET_GRAM_RULES) {
        bnet_program_fail(p, BITNET_ARGUMENT, "it has more than %zu rules; make it smaller",
                          BNET_GRAM_RULES);
        return 0;
    }
    if (!bnet_grow(&p->rules, &p->cap_rules, p->n_rules + 1, sizeof *p->rules)) {
        no_memory(p);
        return 0;
    }
    p->rules[p->n_rules] = rule;
    return (uint32_t)p->n_rules++;
}

uint32_t bnet_program_rule(bnet_program *p, const char *name, size_t n_name)
{
    bnet_gram_rule rule = {.name = (uint32_t)p->names.n, .n_name = (uint32_t)n_name};
    bnet_str_add(&p->names, name, n_name);
    if (p->names.failed)
        no_memory(p);
    return add_rule(p, rule);
}

bnet_span bnet_program_name(const bnet_program *p, uint32_t rule)
{
    const bnet_gram_rule *r = &p->rules[rule];
    return (bnet_span){p->names.data ? p->names.data + r->name : "", r->n_name};
}

void bnet_program_begin(bnet_program *p, uint32_t rule)
{
    if (p->status != BITNET_OK)
        return;
    p->rules[rule].start = (uint32_t)p->n_code;
    p->rules[rule].defined = true;
    p->current = rule;
}

void bnet_program_end(bnet_program *p)
{
    put(p, (bnet_gram_op){.code = BNET_GRAM_RET});
}

/* ---- instructions ---- */

void bnet_program_byte(bnet_program *p, unsigned lo, unsigned hi)
{
    put(p, (bnet_gram_op){.code = BNET_GRAM_BYTES, .lo = (uint8_t)lo, .hi = (uint8_t)hi});
}

void bnet_program_text(bnet_program *p, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        bnet_program_byte(p, (unsigned char)bytes[i], (unsigned char)bytes[i]);
}

void bnet_program_call(bnet_program *p, uint32_t rule, uint32_t min, uint32_t max)
{
    if (max > 0)
        put(p,
            (bnet_gram_op){.code = BNET_GRAM_CALL, .arg = (int32_t)rule, .min = min, .max = max});
}

bnet_choice bnet_program_either(bnet_program *p)
{
    return (bnet_choice){.alt = put(p, (bnet_gram_op){.code = BNET_GRAM_JUMP, .arg = 1})};
}

void bnet_program_or(bnet_program *p, bnet_choice *c)
{
    size_t jump = put(p, (bnet_gram_op){.code = BNET_GRAM_JUMP, .arg = (int32_t)c->jumps});
    c->jumps = jump + 1;
    aim(p, c->alt);
    if (p->status == BITNET_OK)
        p->code[c->alt].code = BNET_GRAM_ALT;
    c->alt = put(p, (bnet_gram_op){.code = BNET_GRAM_JUMP, .arg = 1});
}

void bnet_program_close(bnet_program *p, bnet_choice *c)
{
    if (!c->may_be_empty && !c->jumps && p->status == BITNET_OK && p->n_code == c->alt + 1)
        bnet_program_fail(p, BITNET_ARGUMENT, "it asks for one of several texts, and has none");
    for (size_t at = c->jumps; at && p->status == BITNET_OK;) {
        size_t before = (size_t)p->code[at - 1].arg;
        aim(p, at - 1);
        at = before;
    }
}

size_t bnet_program_loop(bnet_program *p)
{
    return put(p, (bnet_gram_op){.code = BNET_GRAM_JUMP, .arg = 1});
}

void bnet_program_loop_end(bnet_program *p, size_t loop, uint32_t min, uint32_t max)
{
    bnet_program_end(p);
    aim(p, loop);
    if (p->status != BITNET_OK)
        return;
    bnet_gram_rule body = p->rules[p->current];
    body.start = (uint32_t)loop + 1;
    body.defined = true;
    bnet_program_call(p, add_rule(p, body), min, max);
}

size_t bnet_program_leap(bnet_program *p)
{
    return put(p, (bnet_gram_op){.code = BNET_GRAM_JUMP, .arg = 1});
}

size_t bnet_program_skip(bnet_program *p)
{
    return put(p, (bnet_gram_op){.code = BNET_GRAM_ALT, .arg = 1});
}

void bnet_program_land(bnet_program *p, size_t leap)
{
    aim(p, leap);
}
