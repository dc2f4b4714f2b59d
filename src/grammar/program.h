/* program.h - a grammar as instructions over bytes, and the pen that writes them. Readers of
 * grammars and of schemas write programs; the machine (machine.h) follows them.
 *
 * A rule is a place in the code where its instructions begin; they end with RET. Every instruction
 * but RET and JUMP goes on with the one behind it:
 *
 *   BYTES  takes one byte of lo..hi
 *   CALL   goes through a rule at least `min` and at most `max` times
 *   ALT    goes on behind it, or `arg` instructions further
 *   JUMP   goes on `arg` instructions further
 *   RET    the rule is done
 *
 * Characters are written as the bytes of their UTF-8, so that whoever follows a program needs to
 * know of bytes alone. */
#ifndef BNET_PROGRAM_H
#define BNET_PROGRAM_H

#include "base/str.h"

typedef enum bnet_gram_code {
    BNET_GRAM_BYTES,
    BNET_GRAM_CALL,
    BNET_GRAM_ALT,
    BNET_GRAM_JUMP,
    BNET_GRAM_RET
} bnet_gram_code;

#define BNET_GRAM_MANY  UINT32_MAX          /* `max` of a CALL: any number of times */
#define BNET_GRAM_CODE  ((size_t)1 << 18)   /* instructions of a program */
#define BNET_GRAM_RULES ((size_t)1 << 16)   /* rules, and bodies of repetitions */
#define BNET_GRAM_TEXT  ((size_t)1 << 20)   /* bytes of a grammar or a schema */
#define BNET_GRAM_COUNT ((uint32_t)1 << 30) /* the most that a repetition may ask for */

typedef struct bnet_gram_op {
    uint8_t code;       /* bnet_gram_code */
    uint8_t lo, hi;     /* of BYTES */
    bool tail : 1;      /* a CALL with nothing behind it in its rule */
    bool empty : 1;     /* a CALL whose rule may take no byte */
    bool completes : 1; /* from here the end of the rule can be reached */
    int32_t arg;        /* of CALL: the rule; of ALT and JUMP: a distance, forwards */
    uint32_t min, max;  /* of CALL */
} bnet_gram_op;

typedef struct bnet_gram_rule {
    uint32_t start;
    uint32_t name, n_name; /* in `names`; a repetition's body has the name of the rule it is in */
    bool defined;
} bnet_gram_rule;

/* Zero-initialise, set `err`. After a failure the functions below do nothing, and `status` and
 * `err` say what the first one was. */
typedef struct bnet_program {
    bnet_gram_op *code;
    size_t n_code, cap_code;
    bnet_gram_rule *rules;
    size_t n_rules, cap_rules;
    bnet_str names;
    uint32_t root;
    /* set by _finish: bytes that no instruction tells apart are one class */
    uint8_t class_of[256];
    uint8_t byte_of[256]; /* one byte of each class */
    int n_classes;
    /* while it is written */
    bitnet_status status;
    bitnet_error *err;
    uint32_t current; /* the rule being written */
} bnet_program;

void bnet_program_free(bnet_program *p);
/* Fails with a message of the printf kind, unless it has failed. */
void bnet_program_fail(bnet_program *p, bitnet_status status, const char *fmt, ...)
    BITNET_PRINTF(3, 4);

/* A rule that has no instructions yet. */
uint32_t bnet_program_rule(bnet_program *p, const char *name, size_t n_name);
bnet_span bnet_program_name(const bnet_program *p, uint32_t rule);
/* Around the instructions of a rule; not one inside another. */
void bnet_program_begin(bnet_program *p, uint32_t rule);
void bnet_program_end(bnet_program *p);

void bnet_program_byte(bnet_program *p, unsigned lo, unsigned hi);
void bnet_program_text(bnet_program *p, const char *bytes, size_t n);
void bnet_program_call(bnet_program *p, uint32_t rule, uint32_t min, uint32_t max);

/* One of several: _either, what the first is, _or, what the second is, ..., _close. Where nothing
 * was written in between, _close fails: a choice of no texts would let the empty one through. */
typedef struct bnet_choice {
    size_t alt;   /* the instruction that leads to the next one */
    size_t jumps; /* the last of those that lead to the end, + 1, each naming the one before it */
    bool may_be_empty; /* set by who writes: the empty text alone is meant where nothing is written
                        */
} bnet_choice;

bnet_choice bnet_program_either(bnet_program *p);
void bnet_program_or(bnet_program *p, bnet_choice *c);
void bnet_program_close(bnet_program *p, bnet_choice *c);

/* Something several times: _loop, what is repeated, _loop_end. */
size_t bnet_program_loop(bnet_program *p);
void bnet_program_loop_end(bnet_program *p, size_t loop, uint32_t min, uint32_t max);

/* Ways to a place that is not known yet: _leap goes there, _skip goes there or on behind it; _land
 * stands at the place. (What begins with _loop and has no _loop_end is simply there once.) */
size_t bnet_program_leap(bnet_program *p);
size_t bnet_program_skip(bnet_program *p);
void bnet_program_land(bnet_program *p, size_t from);

/* Completes the program (program_check.c): finds what each instruction and the machine need to
 * know, lets no JUMP lead to another, and refuses rules that are missing, that begin with
 * themselves, or that can never end. Takes time proportional to the program. Returns p->status. */
bitnet_status bnet_program_finish(bnet_program *p);

#endif
