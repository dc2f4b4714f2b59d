/* bench.h - what the files of `bitnet bench` share: what is asked for, one opened side, and the
 * rows it gave. */
#ifndef BITNET_CLI_BENCH_H
#define BITNET_CLI_BENCH_H

#include "cli.h"

enum { BENCH_LIST_MAX = 64, BENCH_KERNELS_MAX = 256, BENCH_REPEATS_MAX = 1000 };
enum { PROFILE_TOKENS = 32, PROFILE_DEPTH = 512 }; /* of --profile, unless told otherwise */

typedef struct number_list {
    int data[BENCH_LIST_MAX];
    size_t n;
} number_list;

/* What the options ask for. */
typedef struct bench_plan {
    const args *args;
    char *cpu; /* its name; owned */
    bitnet_bench_test tests[BENCH_LIST_MAX];
    size_t n_tests;
    number_list threads, depths;
    int n_repeats;
    double max_regress;
    bool measures; /* the tests are wanted, not only --kernels or --profile */
} bench_plan;

/* One engine to be timed, and what its machine could do. */
typedef struct bench_side {
    args args;   /* a copy, with this side's instruction set */
    char *model; /* name for rows */
    bitnet_runtime *runtime;
    bitnet_engine *engine;
    bitnet_bench *bench;
    bitnet_receipt *receipt;
    bitnet_bench_run last; /* the last tg run, for the receipt */
    bitnet_limits limits;
    double load_ms;
    size_t n_runs, n_runs_planned; /* for the progress that is shown */
} bench_side;

typedef struct bench_row {
    bitnet_bench_test test;
    char what[32]; /* "tg64" */
    char *name;    /* "tg64@d512 kv=int8": with model and threads what a baseline knows */
    char *model;
    char device[16];
    bitnet_summary tok_s;
    size_t n_rebuilt; /* tokens of the last run computed again for want of blocks (--kv-pool) */
    double gb_s, gop_s;
    bitnet_limits limits; /* of the threads it was measured with */
    bitnet_kernel_use kernels[BENCH_KERNELS_MAX];
    size_t n_kernels;
    double load_ms, rss_mb;
} bench_row;

typedef struct bench_rows {
    bench_row *data;
    size_t n;
} bench_rows;

/* ---- cmd_bench.c ---- */

/* What --model or --synthetic name; `name` as it was written. */
typedef struct bench_source {
    bitnet_synthetic *synthetic; /* NULL: a file */
    char *path;
} bench_source;

int source_open(const args *a, const char *path, const char *shape, const char *head,
                bench_source *out);
void source_close(bench_source *s);
/* isa NULL: as the options say. */
int side_open(const bench_plan *p, const bench_source *s, int n_threads, const char *isa,
              bench_side *out);
void side_close(bench_side *s);
/* Shows from now on how many of the runs that are planned were made, until progress_end. */
void side_expect(const bench_plan *p, bench_side *s);
int side_warm(bench_side *s, const bitnet_bench_test *t); /* a short run of the test, not counted */
int side_once(bench_side *s, const bitnet_bench_test *t, double *tok_s);
void fill_row(const bench_plan *p, bench_side *s, const bitnet_bench_test *t, double *tok_s,
              size_t n, bench_row *out);
void row_free(bench_row *r);
int deepest(const bench_plan *p); /* of --depth */
/* Fails if an option is given that has no meaning with `mode`, --compare or --crowded. */
int check_alone(const bench_plan *p, option_key mode);

/* ---- bench_rows.c ---- */

char *cpu_name(void);                       /* to be freed */
double peak_of(const bitnet_limits *l);     /* Gop/s that gop_s is held against; 0: not measured */
double share_of(double part, double whole); /* not a number where the whole is not known */
json_t *row_json(const bench_plan *p, const bench_row *r);
void print_head(const bench_plan *p, const char *model);
void print_limits(const bitnet_limits *l);
void print_row(const bench_plan *p, const bench_row *r);
void print_kernels(const bench_rows *rows);
void test_name(const bitnet_bench_test *t, char *buf, size_t cap); /* "pp512" */

int gate_prepare(const bench_plan *p); /* --save, --baseline, --plot: fails early */
int gate_finish(const bench_plan *p, const bench_rows *rows);

/* ---- bench_profile.c: --profile, --kernels ---- */

bool on_device(const bench_side *s); /* a GPU */
/* Memory computed and taken, speed of loading. */
void bench_device_memory(const bench_plan *p, const bench_side *s);
int bench_profile(const bench_plan *p, bench_side *s);
int bench_kernels(const bench_plan *p, bench_side *s);

/* ---- bench_compare.c ---- */

int bench_compare(const bench_plan *p);
int bench_crowded(const bench_plan *p);

#endif
