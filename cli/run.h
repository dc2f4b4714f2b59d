/* run.h - what cmd_run.c makes and run_report.c tells. */
#ifndef BITNET_CLI_RUN_H
#define BITNET_CLI_RUN_H

#include "terminal.h"

/* The most likely tokens of one step (--dump-logit-steps). */
typedef struct step {
    int32_t chosen;
    top_token *top; /* [n_top], best first */
    size_t n_top;
} step;

typedef struct run_state {
    const args *args;
    loaded m;
    bitnet_sampler *sampler;
    uint64_t seed;
    buffer prompt;             /* as tokenized */
    const char *template_name; /* what rendered it */
    id_list prompt_ids, ids;
    buffer made; /* the text of ids */
    wrap wrap;   /* of what is shown */
    text_form form;
    reply_events events;
    bitnet_generate_result result;
    stop_list stops;
    step *steps;
    size_t n_steps;
    int32_t first_not_greedy; /* index into ids, -1: none */
    bitnet_receipt *receipt;  /* NULL: not wanted */
    bool text_begun;          /* the prompt is computed, and echoed where that is wanted */
    bool repeated, identical; /* --deterministic --receipt: run twice; the same tokens */
    double start_ms, tokenize_ms, dump_ms, total_ms;
} run_state;

int run_report(run_state *r);
void run_closing_line(const run_state *r);
void run_dump_ids(const run_state *r);
void run_dump_steps(const run_state *r);

#endif
