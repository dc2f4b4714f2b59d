/* machine.c - from a set of ways to the next one, and the tables that remember it. */
#include "grammar/machine.h"

#include <stdlib.h>

enum {
    MAX_STEPS = 1 << 19,  /* of a call: places looked at */
    MAX_DEPTH = 1024,     /* frames of a stack: deeper calls are not made */
    MAX_WAYS = 8192,      /* of a state */
    FEW_STATES = 1 << 13, /* so many are kept, whether in use or not */
    FEW_FRAMES = 1 << 16,
    FEW_WAYS = 1 << 19,
    MORE_STATES = 1 << 15, /* so many may be added by a call */
    FEW_ENTRIES = 1 << 20, /* of the table of next states, whose rows are as long as the classes */
    MORE_ENTRIES = 1 << 22,
};
#define NO_COUNT UINT32_MAX /* of a place that is not a CALL on its way back */

/* ---- opening ---- */

static bool add_state(bnet_machine *m, bnet_state s)
{
    size_t n_classes = (size_t)m->program->n_classes;
    if (!bnet_grow(&m->states, &m->cap_states, m->n_states + 1, sizeof *m->states) ||
        !bnet_grow(&m->next, &m->cap_next, (m->n_states + 1) * n_classes, sizeof *m->next))
        return false;
    for (size_t c = 0; c < n_classes; c++)
        m->next[m->n_states * n_classes + c] = BNET_STATE_UNKNOWN;
    m->states[m->n_states++] = s;
    return true;
}

static bool begin_tables(bnet_machine *m)
{
    enum { SLOTS = 256 };
    m->frame_table = (bnet_table){bnet_calloc(SLOTS, sizeof(uint32_t)), SLOTS};
    m->state_table = (bnet_table){bnet_calloc(SLOTS, sizeof(uint32_t)), SLOTS};
    m->seen = bnet_calloc(SLOTS, sizeof *m->seen);
    m->cap_seen = SLOTS;
    if (!m->frame_table.slots || !m->state_table.slots || !m->seen ||
        !bnet_grow(&m->frames, &m->cap_frames, 1, sizeof *m->frames) ||
        !bnet_grow(&m->ways, &m->cap_ways, 1, sizeof *m->ways))
        return false;
    m->frames[0] = (bnet_frame){0};
    m->n_frames = 1;
    if (!add_state(m, (bnet_state){.mask = -1}))
        return false;
    for (int c = 0; c < m->program->n_classes; c++)
        m->next[c] = BNET_STATE_DEAD;
    return true;
}

bool bnet_machine_open(bnet_machine *m, const bnet_program *p)
{
    *m = (bnet_machine){.program = p, .key = bnet_hash_key_new()};
    if (begin_tables(m))
        return true;
    bnet_machine_close(m);
    return false;
}

void bnet_machine_close(bnet_machine *m)
{
    bnet_free(m->frames);
    bnet_free(m->states);
    bnet_free(m->ways);
    bnet_free(m->next);
    bnet_free(m->frame_table.slots);
    bnet_free(m->state_table.slots);
    bnet_free(m->todo);
    bnet_free(m->seen);
    *m = (bnet_machine){0};
}

static size_t n_classes(const bnet_machine *m)
{
    return (size_t)m->program->n_classes;
}

void bnet_machine_begin(bnet_machine *m)
{
    m->n_steps = 0;
    m->max_steps = MAX_STEPS;
    m->max_states = m->n_states + BNET_MIN((size_t)MORE_STATES, MORE_ENTRIES / n_classes(m));
    m->status = BITNET_OK;
}

bitnet_status bnet_machine_fail(const bnet_machine *m, bitnet_error *err)
{
    if (m->status == BITNET_MEMORY)
        return bnet_no_memory(err, "grammar");
    return bnet_fail(
        err, BITNET_ARGUMENT,
        "grammar: a text can be read in too many ways at a time; let alternatives begin "
        "with different characters, and nest repetitions less");
}

static bool stop(bnet_machine *m, bitnet_status why)
{
    if (m->status == BITNET_OK)
        m->status = why;
    return false;
}

/* ---- tables of frames and states ---- */

static uint64_t hash_of(const bnet_machine *m, const void *data, size_t n)
{
    return bnet_hash(m->key, data, n, false);
}

static uint64_t frame_hash(const bnet_machine *m, const bnet_frame *f)
{
    return hash_of(m, f, 3 * sizeof(uint32_t)); /* the depth follows from these */
}

static uint64_t state_hash(const bnet_machine *m, const bnet_state *s)
{
    return hash_of(m, m->ways + s->first, s->n_ways * sizeof *m->ways) ^ s->ends;
}

/* Makes room for one more of n entries, whose hashes are found by number. */
static bool table_room(bnet_machine *m, bnet_table *t, size_t n, bool frames)
{
    if (2 * (n + 1) <= t->n_slots)
        return true;
    bnet_table more = {bnet_calloc(2 * t->n_slots, sizeof(uint32_t)), 2 * t->n_slots};
    if (!more.slots)
        return stop(m, BITNET_MEMORY);
    for (size_t i = 1; i < n; i++) {
        uint64_t h = frames ? frame_hash(m, &m->frames[i]) : state_hash(m, &m->states[i]);
        size_t at = h & (more.n_slots - 1);
        while (more.slots[at])
            at = (at + 1) & (more.n_slots - 1);
        more.slots[at] = (uint32_t)i + 1;
    }
    bnet_free(t->slots);
    *t = more;
    return true;
}

/* The number of that frame, in *out. */
static bool frame_of(bnet_machine *m, bnet_frame f, uint32_t *out)
{
    if (!table_room(m, &m->frame_table, m->n_frames, true))
        return false;
    bnet_table *t = &m->frame_table;
    size_t at = frame_hash(m, &f) & (t->n_slots - 1);
    for (; t->slots[at]; at = (at + 1) & (t->n_slots - 1)) {
        const bnet_frame *g = &m->frames[t->slots[at] - 1];
        if (g->pc == f.pc && g->count == f.count && g->below == f.below) {
            *out = t->slots[at] - 1;
            return true;
        }
    }
    if (!bnet_grow(&m->frames, &m->cap_frames, m->n_frames + 1, sizeof *m->frames))
        return stop(m, BITNET_MEMORY);
    m->frames[m->n_frames] = f;
    t->slots[at] = (uint32_t)m->n_frames + 1;
    *out = (uint32_t)m->n_frames++;
    return true;
}

static bool same_state(const bnet_machine *m, const bnet_state *a, const bnet_state *b)
{
    return a->n_ways == b->n_ways && a->ends == b->ends &&
           memcmp(m->ways + a->first, m->ways + b->first, a->n_ways * sizeof *m->ways) == 0;
}

/* The number of a state whose ways are the last of m->ways; they are dropped if it is known. */
static int32_t state_of(bnet_machine *m, bnet_state s)
{
    if (s.n_ways == 0 && !s.ends)
        return BNET_STATE_DEAD;
    if (!table_room(m, &m->state_table, m->n_states, false))
        return BNET_STATE_ERROR;
    bnet_table *t = &m->state_table;
    size_t at = state_hash(m, &s) & (t->n_slots - 1);
    for (; t->slots[at]; at = (at + 1) & (t->n_slots - 1))
        if (same_state(m, &m->states[t->slots[at] - 1], &s)) {
            m->n_ways = s.first;
            return (int32_t)t->slots[at] - 1;
        }
    if (m->n_states >= m->max_states || !add_state(m, s)) {
        stop(m, m->n_states >= m->max_states ? BITNET_ARGUMENT : BITNET_MEMORY);
        return BNET_STATE_ERROR;
    }
    t->slots[at] = (uint32_t)m->n_states;
    return (int32_t)m->n_states - 1;
}

/* ---- finding a state ---- */

static uint64_t mix(bnet_visit v)
{
    uint64_t h = ((uint64_t)v.pc << 32 | v.frame) * 0x9e3779b97f4a7c15u + v.count;
    return (h ^ h >> 29) * 0xbf58476d1ce4e5b9u >> 17;
}

static bool more_seen(bnet_machine *m)
{
    bnet_visit *old = m->seen;
    size_t n_old = m->cap_seen;
    bnet_visit *fresh = bnet_calloc(2 * n_old, sizeof *fresh);
    if (!fresh)
        return stop(m, BITNET_MEMORY);
    for (size_t i = 0; i < n_old; i++) {
        if (old[i].round != m->round)
            continue;
        size_t at = mix(old[i]) & (2 * n_old - 1);
        while (fresh[at].round == m->round)
            at = (at + 1) & (2 * n_old - 1);
        fresh[at] = old[i];
    }
    m->seen = fresh;
    m->cap_seen = 2 * n_old;
    bnet_free(old);
    return true;
}

/* Notes a place; *is_new false: it was noted in this round. False: out of bounds. */
static bool note(bnet_machine *m, bnet_visit v, bool *is_new)
{
    v.round = m->round;
    if (++m->n_steps > m->max_steps)
        return stop(m, BITNET_ARGUMENT);
    if (2 * (m->n_seen + 1) > m->cap_seen && !more_seen(m))
        return false;
    size_t at = mix(v) & (m->cap_seen - 1);
    for (; m->seen[at].round == m->round; at = (at + 1) & (m->cap_seen - 1))
        if (memcmp(&m->seen[at], &v, sizeof v) == 0) {
            *is_new = false;
            return true;
        }
    m->seen[at] = v;
    m->n_seen++;
    *is_new = true;
    return true;
}

/* Puts a place on the list of those to look at, once in a round. */
static bool visit(bnet_machine *m, uint32_t pc, uint32_t frame, uint32_t count)
{
    bnet_visit v = {pc, frame, count, 0};
    bool is_new;
    if (!m->program->code[pc].completes)
        return true; /* no end can be reached from there */
    if (!note(m, v, &is_new))
        return false;
    if (!is_new)
        return true;
    if (!bnet_grow(&m->todo, &m->cap_todo, m->n_todo + 1, sizeof *m->todo))
        return stop(m, BITNET_MEMORY);
    m->todo[m->n_todo++] = v;
    return true;
}

/* Enters the rule of the CALL at pc once more; the frame for its return is left out where nothing
 * would be done there. */
static bool enter(bnet_machine *m, uint32_t pc, uint32_t frame, uint32_t count)
{
    const bnet_gram_op *op = &m->program->code[pc];
    uint32_t start = m->program->rules[op->arg].start, depth = m->frames[frame].depth + 1;
    if (op->tail && count >= op->max)
        return visit(m, start, frame, NO_COUNT);
    if (depth > MAX_DEPTH)
        return true;
    if (op->max == BNET_GRAM_MANY)
        count = BNET_MIN(count, op->min); /* further ones need not be told apart */
    if (!frame_of(m, (bnet_frame){pc, count, frame, depth, 0}, &frame))
        return false;
    m->frames[frame].round = m->round;
    return visit(m, start, frame, NO_COUNT);
}

/* At a CALL whose rule was gone through `count` times. */
static bool at_call(bnet_machine *m, uint32_t pc, uint32_t frame, uint32_t count)
{
    const bnet_gram_op *op = &m->program->code[pc];
    if (count < op->max && m->program->code[m->program->rules[op->arg].start].completes &&
        !enter(m, pc, frame, count + 1))
        return false;
    return count < op->min || visit(m, pc + 1, frame, NO_COUNT);
}

/* At the end of a rule. If it was entered in this round, it took no byte: its CALL has been looked
 * at with one time less, which leads wherever this would. */
static bool at_return(bnet_machine *m, uint32_t frame, bool *ends)
{
    if (frame == 0) {
        *ends = true;
        return true;
    }
    bnet_frame f = m->frames[frame];
    if (f.round == m->round && m->program->code[f.pc].empty)
        return true;
    return visit(m, f.pc, f.below, f.count);
}

static bool look(bnet_machine *m, bnet_visit v, bool *ends)
{
    const bnet_gram_op *op = &m->program->code[v.pc];
    switch ((bnet_gram_code)op->code) {
    case BNET_GRAM_BYTES:
        if (!bnet_grow(&m->ways, &m->cap_ways, m->n_ways + 1, sizeof *m->ways))
            return stop(m, BITNET_MEMORY);
        m->ways[m->n_ways++] = (bnet_way){v.pc, v.frame};
        return true;
    case BNET_GRAM_CALL:
        return at_call(m, v.pc, v.frame, v.count == NO_COUNT ? 0 : v.count);
    case BNET_GRAM_ALT:
        return visit(m, v.pc + 1, v.frame, NO_COUNT) &&
               visit(m, v.pc + (uint32_t)op->arg, v.frame, NO_COUNT);
    case BNET_GRAM_JUMP:
        return visit(m, v.pc + (uint32_t)op->arg, v.frame, NO_COUNT);
    case BNET_GRAM_RET:
        return at_return(m, v.frame, ends);
    }
    return false;
}

static int by_way(const void *a, const void *b)
{
    const bnet_way *x = a, *y = b;
    if (x->pc != y->pc)
        return x->pc < y->pc ? -1 : 1;
    return (x->frame > y->frame) - (x->frame < y->frame);
}

/* Looks at all places noted, and at those they lead to; the ways found become a state. */
static int32_t settle(bnet_machine *m, size_t first)
{
    bool ends = false;
    while (m->n_todo > 0)
        if (!look(m, m->todo[--m->n_todo], &ends))
            break;
    size_t n = m->n_ways - first;
    if (m->status == BITNET_OK && n > MAX_WAYS)
        stop(m, BITNET_ARGUMENT);
    if (m->status != BITNET_OK) {
        m->n_ways = first;
        return BNET_STATE_ERROR;
    }
    if (n > 1)
        qsort(m->ways + first, n, sizeof *m->ways, by_way);
    int32_t state = state_of(
        m, (bnet_state){.first = (uint32_t)first, .n_ways = (uint32_t)n, .ends = ends, .mask = -1});
    if (state == BNET_STATE_ERROR)
        m->n_ways = first;
    return state;
}

static void begin_round(bnet_machine *m)
{
    if (++m->round == 0) { /* after four thousand million: what is left of the first is forgotten */
        memset(m->seen, 0, m->cap_seen * sizeof *m->seen);
        for (size_t i = 0; i < m->n_frames; i++)
            m->frames[i].round = 0;
        m->round = 1;
    }
    m->n_seen = m->n_todo = 0;
}

int32_t bnet_machine_start(bnet_machine *m)
{
    begin_round(m);
    visit(m, m->program->rules[m->program->root].start, 0, NO_COUNT);
    return settle(m, m->n_ways);
}

int32_t bnet_machine_find(bnet_machine *m, int32_t state, int class_of_byte)
{
    const bnet_program *p = m->program;
    bnet_state from = m->states[state];
    uint8_t byte = p->byte_of[class_of_byte];
    size_t first = m->n_ways;
    begin_round(m);
    for (size_t i = 0; i < from.n_ways; i++) {
        bnet_way w = m->ways[from.first + i];
        if (byte >= p->code[w.pc].lo && byte <= p->code[w.pc].hi &&
            !visit(m, w.pc + 1, w.frame, NO_COUNT))
            break;
    }
    int32_t to = settle(m, first);
    if (to >= 0)
        m->next[(size_t)state * (size_t)p->n_classes + (size_t)class_of_byte] = to;
    return to;
}

/* ---- forgetting ---- */

bool bnet_machine_full(const bnet_machine *m)
{
    return m->n_states > BNET_MIN((size_t)FEW_STATES, FEW_ENTRIES / n_classes(m)) ||
           m->n_frames > FEW_FRAMES || m->n_ways > FEW_WAYS;
}

/* The frame's number in the machine `to`; `known` has those found, + 1. Frames below have lower
 * numbers, so `known` is filled from the bottom. */
static bool copy_frames(const bnet_machine *from, bnet_machine *to, const uint8_t *used,
                        uint32_t *known)
{
    for (size_t i = 1; i < from->n_frames; i++) {
        bnet_frame f = from->frames[i];
        f.below = known[f.below];
        f.round = 0;
        if (used[i] && !frame_of(to, f, &known[i]))
            return false;
    }
    return true;
}

static void mark_frames(const bnet_machine *m, const bnet_state *s, uint8_t *used)
{
    for (size_t i = 0; i < s->n_ways; i++)
        for (uint32_t f = m->ways[s->first + i].frame; f && !used[f]; f = m->frames[f].below)
            used[f] = 1;
}

static int32_t copy_state(const bnet_machine *from, bnet_machine *to, int32_t state,
                          const uint32_t *known)
{
    bnet_state s = from->states[state];
    size_t first = to->n_ways;
    if (state == BNET_STATE_DEAD)
        return state;
    if (!bnet_grow(&to->ways, &to->cap_ways, first + s.n_ways, sizeof *to->ways))
        return BNET_STATE_ERROR;
    for (size_t i = 0; i < s.n_ways; i++) {
        bnet_way w = from->ways[s.first + i];
        to->ways[first + i] = (bnet_way){w.pc, known[w.frame]};
    }
    to->n_ways += s.n_ways;
    if (s.n_ways > 1)
        qsort(to->ways + first, s.n_ways, sizeof *to->ways, by_way);
    s.first = (uint32_t)first;
    s.mask = -1;
    return state_of(to, s);
}

bool bnet_machine_keep(bnet_machine *m, int32_t **states, size_t n)
{
    bnet_machine fresh;
    uint8_t *used = bnet_calloc(m->n_frames, 1);
    uint32_t *known = bnet_calloc(m->n_frames, sizeof *known);
    int32_t *numbers = bnet_calloc(n + 1, sizeof *numbers);
    bool opened = bnet_machine_open(&fresh, m->program), ok = opened && used && known && numbers;
    fresh.max_states = SIZE_MAX;
    for (size_t i = 0; ok && i < n; i++)
        mark_frames(m, &m->states[*states[i]], used);
    ok = ok && copy_frames(m, &fresh, used, known);
    for (size_t i = 0; ok && i < n; i++)
        ok = (numbers[i] = copy_state(m, &fresh, *states[i], known)) != BNET_STATE_ERROR;
    for (size_t i = 0; ok && i < n; i++)
        *states[i] = numbers[i];
    if (ok) {
        bnet_machine_close(m);
        *m = fresh;
    } else if (opened) {
        bnet_machine_close(&fresh);
    }
    bnet_free(used);
    bnet_free(known);
    bnet_free(numbers);
    return ok;
}
