/* program_check.c - what must be known of a whole program before it is followed: which rules may
 * take no byte, from which instructions the end can be reached, which rules begin with themselves,
 * and which bytes are alike. All of it in time proportional to the program. */
#include "grammar/program.h"

/* For every instruction, the instructions whose answer depends on its answer. */
typedef struct dependents {
    uint32_t *first; /* [n + 1] */
    uint32_t *list;
    uint32_t *queue; /* [n] */
} dependents;

/* Calls `each` with (the instruction depended on, the dependent one). */
typedef void edge_fn(dependents *d, uint32_t on, uint32_t who);

static void count_edge(dependents *d, uint32_t on, uint32_t who)
{
    (void)who;
    d->first[on + 1]++;
}

static void list_edge(dependents *d, uint32_t on, uint32_t who)
{
    d->list[d->first[on]++] = who;
}

static void each_edge(const bnet_program *p, dependents *d, edge_fn *each)
{
    for (uint32_t pc = 0; pc < p->n_code; pc++) {
        const bnet_gram_op *op = &p->code[pc];
        if (op->code == BNET_GRAM_BYTES || op->code == BNET_GRAM_CALL || op->code == BNET_GRAM_ALT)
            each(d, pc + 1, pc);
        if (op->code == BNET_GRAM_ALT || op->code == BNET_GRAM_JUMP)
            each(d, pc + (uint32_t)op->arg, pc);
        if (op->code == BNET_GRAM_CALL)
            each(d, p->rules[op->arg].start, pc);
    }
}

static bool find_dependents(const bnet_program *p, dependents *d)
{
    size_t n = p->n_code;
    d->first = bnet_calloc(n + 2, sizeof *d->first);
    d->list = bnet_calloc(3 * n, sizeof *d->list);
    d->queue = bnet_calloc(n, sizeof *d->queue);
    if (!d->first || !d->list || !d->queue)
        return false;
    each_edge(p, d, count_edge);
    for (size_t i = 0; i < n; i++)
        d->first[i + 1] += d->first[i];
    each_edge(p, d, list_edge); /* moves first[i] to where first[i + 1] was */
    for (size_t i = n; i > 0; i--)
        d->first[i] = d->first[i - 1];
    d->first[0] = 0;
    return true;
}

static void free_dependents(dependents *d)
{
    bnet_free(d->first);
    bnet_free(d->list);
    bnet_free(d->queue);
}

/* Does the answer hold at pc, given those found so far? `bytes`: what is behind a BYTES counts. */
static bool holds(const bnet_program *p, const uint8_t *yes, uint32_t pc, bool bytes)
{
    const bnet_gram_op *op = &p->code[pc];
    switch ((bnet_gram_code)op->code) {
    case BNET_GRAM_BYTES:
        return bytes && yes[pc + 1];
    case BNET_GRAM_CALL:
        return (op->min == 0 || yes[p->rules[op->arg].start]) && yes[pc + 1];
    case BNET_GRAM_ALT:
        return yes[pc + 1] || yes[pc + (uint32_t)op->arg];
    case BNET_GRAM_JUMP:
        return yes[pc + (uint32_t)op->arg];
    case BNET_GRAM_RET:
        return true;
    }
    return false;
}

/* Sets yes[pc] wherever the end of the rule can be reached from pc; `bytes`: taking bytes. */
static void spread(const bnet_program *p, dependents *d, uint8_t *yes, bool bytes)
{
    size_t n = 0;
    memset(yes, 0, p->n_code);
    for (uint32_t pc = 0; pc < p->n_code; pc++)
        if (p->code[pc].code == BNET_GRAM_RET) {
            yes[pc] = 1;
            d->queue[n++] = pc;
        }
    while (n > 0) {
        uint32_t pc = d->queue[--n];
        for (uint32_t i = d->first[pc]; i < d->first[pc + 1]; i++) {
            uint32_t who = d->list[i];
            if (!yes[who] && holds(p, yes, who, bytes)) {
                yes[who] = 1;
                d->queue[n++] = who;
            }
        }
    }
}

static void mark_empty(bnet_program *p, const uint8_t *yes)
{
    for (size_t pc = 0; pc < p->n_code; pc++) {
        bnet_gram_op *op = &p->code[pc];
        if (op->code == BNET_GRAM_CALL && yes[p->rules[op->arg].start]) {
            op->empty = true;
            op->min = 0; /* what is missing may be empty */
        }
    }
}

static void mark_completes(bnet_program *p, const uint8_t *yes)
{
    for (size_t pc = 0; pc < p->n_code; pc++)
        p->code[pc].completes = yes[pc];
    if (yes[p->rules[p->root].start])
        return;
    bnet_span name = bnet_program_name(p, p->root);
    char text[96];
    bnet_program_fail(p, BITNET_ARGUMENT,
                      "no text of \"%s\" ever ends: every way through it leads to itself again",
                      bnet_quote(name.data, name.n, text, sizeof text));
}

/* A JUMP to a JUMP goes where that one goes; all lead forwards, so the last comes first. */
static void shorten_jumps(bnet_program *p)
{
    for (size_t pc = p->n_code; pc-- > 0;) {
        bnet_gram_op *op = &p->code[pc];
        if (op->code == BNET_GRAM_JUMP && op[op->arg].code == BNET_GRAM_JUMP)
            op->arg += op[op->arg].arg;
    }
}

/* Once no JUMP leads to a JUMP. */
static void mark_tails(bnet_program *p)
{
    for (size_t pc = 0; pc < p->n_code; pc++) {
        const bnet_gram_op *next = &p->code[pc] + 1;
        if (p->code[pc].code != BNET_GRAM_CALL)
            continue;
        if (next->code == BNET_GRAM_JUMP)
            next += next->arg;
        p->code[pc].tail = next->code == BNET_GRAM_RET;
    }
}

/* ---- rules that begin with themselves ---- */

/* Where the machine may be next after pc without a byte, at most two places; how many. */
static int next_places(const bnet_program *p, uint32_t pc, uint32_t out[2])
{
    const bnet_gram_op *op = &p->code[pc];
    int n = 0;
    if (op->code == BNET_GRAM_ALT || op->code == BNET_GRAM_JUMP)
        out[n++] = pc + (uint32_t)op->arg;
    if (op->code == BNET_GRAM_CALL)
        out[n++] = p->rules[op->arg].start;
    if (op->code == BNET_GRAM_ALT || (op->code == BNET_GRAM_CALL && op->min == 0))
        out[n++] = pc + 1;
    return n;
}

enum { FRESH, OPEN, DONE };

/* The way to the place on top of the stack comes back to itself: names the last rule it went into.
 */
static void begins_with_itself(bnet_program *p, const uint8_t *mark, const uint32_t *stack,
                               size_t n)
{
    char text[96];
    bnet_span name = {"", 0};
    while (n > 0 && !name.n) {
        uint32_t at = stack[--n];
        if (mark[at] == OPEN && p->code[at].code == BNET_GRAM_CALL)
            name = bnet_program_name(p, (uint32_t)p->code[at].arg);
    }
    bnet_program_fail(
        p, BITNET_ARGUMENT,
        "rule \"%s\" begins with itself (left recursion); let it begin with something "
        "else, for instance by a repetition",
        bnet_quote(name.data, name.n, text, sizeof text));
}

/* Looks at everything that can be reached from pc; `stack` has room for two places of each
 * instruction. */
static void look_from(bnet_program *p, uint32_t pc, uint8_t *mark, uint32_t *stack)
{
    size_t n = 0;
    stack[n++] = pc;
    while (n > 0) {
        uint32_t next[2], at = stack[n - 1];
        if (mark[at] != FRESH) {
            mark[at] = DONE; /* it is seen again when all behind it is done, or was done before */
            n--;
            continue;
        }
        mark[at] = OPEN;
        int n_next = next_places(p, at, next);
        for (int i = 0; i < n_next; i++) {
            if (mark[next[i]] == OPEN) {
                begins_with_itself(p, mark, stack, n);
                return;
            }
            if (mark[next[i]] == FRESH)
                stack[n++] = next[i];
        }
    }
}

static void check_left_recursion(bnet_program *p, uint8_t *mark)
{
    uint32_t *stack = bnet_calloc(2 * p->n_code + 2, sizeof *stack);
    if (!stack) {
        p->status = bnet_no_memory(p->err, "grammar");
        return;
    }
    memset(mark, FRESH, p->n_code);
    for (size_t r = 0; r < p->n_rules && p->status == BITNET_OK; r++)
        if (mark[p->rules[r].start] == FRESH)
            look_from(p, p->rules[r].start, mark, stack);
    bnet_free(stack);
}

/* ---- bytes ---- */

static void find_classes(bnet_program *p)
{
    bool begins[257] = {[0] = true};
    for (size_t pc = 0; pc < p->n_code; pc++)
        if (p->code[pc].code == BNET_GRAM_BYTES) {
            begins[p->code[pc].lo] = true;
            begins[p->code[pc].hi + 1] = true;
        }
    p->n_classes = 0;
    for (int b = 0; b < 256; b++) {
        if (begins[b])
            p->byte_of[p->n_classes++] = (uint8_t)b;
        p->class_of[b] = (uint8_t)(p->n_classes - 1);
    }
}

static void check_defined(bnet_program *p)
{
    for (uint32_t r = 0; r < p->n_rules; r++)
        if (!p->rules[r].defined) {
            bnet_span name = bnet_program_name(p, r);
            char text[96];
            bnet_program_fail(p, BITNET_ARGUMENT, "rule \"%s\" is used, but nowhere defined",
                              bnet_quote(name.data, name.n, text, sizeof text));
            return;
        }
}

bitnet_status bnet_program_finish(bnet_program *p)
{
    if (p->status == BITNET_OK)
        check_defined(p);
    if (p->status != BITNET_OK)
        return p->status;
    dependents d = {0};
    uint8_t *yes = bnet_calloc(p->n_code, 1);
    if (!yes || !find_dependents(p, &d)) {
        p->status = bnet_no_memory(p->err, "grammar");
    } else {
        spread(p, &d, yes, false);
        mark_empty(p, yes);
        check_left_recursion(p, yes);
    }
    if (p->status == BITNET_OK) {
        spread(p, &d, yes, true);
        mark_completes(p, yes);
        shorten_jumps(p);
        mark_tails(p);
        find_classes(p);
    }
    free_dependents(&d);
    bnet_free(yes);
    return p->status;
}
