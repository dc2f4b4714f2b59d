/* machine.h - follows a program byte by byte. A state is the set of all ways in which the bytes so
 * far can have been read; states are numbered, and so is what every class of bytes does to them, as
 * soon as somebody asks: whoever comes the same way again finds an entry of a table.
 *
 * A way is an instruction that waits for a byte and the calls around it, a stack of frames. Equal
 * frames are one, so a stack costs what it does not share with others.
 *
 * Bounded: the steps of one call, the ways of a state, the depth of stacks, and the numbers of
 * states and frames, which bnet_machine_keep brings back to those in use. */
#ifndef BNET_MACHINE_H
#define BNET_MACHINE_H

#include "grammar/program.h"

enum {
    BNET_STATE_DEAD = 0,    /* no way is left */
    BNET_STATE_ERROR = -1,  /* see bnet_machine.status */
    BNET_STATE_UNKNOWN = -2 /* in tables: nobody asked yet */
};

typedef struct bnet_frame {
    uint32_t pc;    /* of the CALL */
    uint32_t count; /* how often its rule was entered */
    uint32_t below;
    uint32_t depth;
    uint32_t round; /* in which it was last entered */
} bnet_frame;

/* A way: the instruction BYTES that waits, and the frame it stands in. */
typedef struct bnet_way {
    uint32_t pc, frame;
} bnet_way;

typedef struct bnet_state {
    uint32_t first, n_ways; /* in `ways` */
    bool ends;              /* the text may end here */
    int32_t mask;           /* for the owner of the machine; -1: none */
} bnet_state;

typedef struct bnet_table { /* open addressing: numbers + 1, 0 is empty */
    uint32_t *slots;
    size_t n_slots;
} bnet_table;

typedef struct bnet_visit {
    uint32_t pc, frame, count, round;
} bnet_visit;

typedef struct bnet_machine {
    const bnet_program *program;
    bnet_frame *frames; /* frames[0] is below all others */
    size_t n_frames, cap_frames;
    bnet_state *states; /* states[0] is dead */
    size_t n_states, cap_states;
    bnet_way *ways;
    size_t n_ways, cap_ways;
    int32_t *next; /* [n_states][n_classes] */
    size_t cap_next;
    bnet_table frame_table, state_table;
    bnet_hash_key key;
    /* while a state is being found */
    bnet_visit *todo; /* a stack of places to look at */
    size_t n_todo, cap_todo;
    bnet_visit *seen; /* a hash table; entries of other rounds are empty */
    size_t n_seen, cap_seen;
    uint32_t round;
    uint64_t n_steps, max_steps; /* since _begin */
    size_t max_states;
    bitnet_status status; /* of the call: OK, MEMORY, or ARGUMENT (a bound) */
} bnet_machine;

bool bnet_machine_open(bnet_machine *m, const bnet_program *p); /* false: no memory */
void bnet_machine_close(bnet_machine *m);
/* Begins a call: so much work may be done until the next _begin. */
void bnet_machine_begin(bnet_machine *m);
/* The state before the first byte, or ERROR. */
int32_t bnet_machine_start(bnet_machine *m);
/* The state behind a byte of the class, for which the table has no entry; ERROR. */
int32_t bnet_machine_find(bnet_machine *m, int32_t state, int class_of_byte);
/* There are more states or frames than need be kept. */
bool bnet_machine_full(const bnet_machine *m);
/* Forgets all states but those of the list, whose numbers it changes in place. False: no memory,
 * nothing has changed. */
bool bnet_machine_keep(bnet_machine *m, int32_t **states, size_t n);
/* Fails with what m->status says. */
bitnet_status bnet_machine_fail(const bnet_machine *m, bitnet_error *err);

static inline int32_t bnet_machine_next(bnet_machine *m, int32_t state, uint8_t byte)
{
    int c = m->program->class_of[byte];
    int32_t to = m->next[(size_t)state * (size_t)m->program->n_classes + (size_t)c];
    return to == BNET_STATE_UNKNOWN ? bnet_machine_find(m, state, c) : to;
}

#endif
