/* bench_server.h - a server of its own for `bitnet bench --serve`. */
#ifndef BITNET_CLI_BENCH_SERVER_H
#define BITNET_CLI_BENCH_SERVER_H

#include <sys/types.h>

#include "bench.h"
#include "traffic.h"

/* `bitnet serve` as another process, so that its work and the client's are told apart. */
typedef struct own_server {
    pid_t pid; /* 0: none */
    traffic_server at;
} own_server;

typedef struct word_list {
    char **data; /* owned, NULL behind the last; NULL: no word was added */
    size_t n;
} word_list;

/* ---- bench_server_options.c ---- */

/* Fails if an option is given that has no meaning with --server or --serve, where one of them is,
 * or none without --server. */
int check_server_options(const bench_plan *p);
/* The command line of the server: the options of bench that serve has, too. */
void server_words(const args *a, const char *model, word_list *out);
/* Its environment: without the variables that serve reads as options, which may be about another
 * server; what bench has read of them stands in the command line. */
void server_environment(word_list *out);
void words_free(word_list *l);

/* ---- bench_own_server.c ---- */

/* Starts it with the model file and waits until it answers. */
int own_server_start(const args *a, const char *model, own_server *out);
void own_server_stop(own_server *s);

/* ---- what --serve measures ---- */

typedef struct library_figures {
    double prompt, crowd, one, large; /* tok/s of pp128, bt16, tg48; of bt64 on a GPU, else 0 */
    int n_ctx, n_embd;
    bool gpu;    /* something else than the CPU computes */
    bool matrix; /* the CPU multiplies small matrices of integers, or four at once (i8mm, VNNI, AMX)
                  */
} library_figures;

typedef struct server_figures {
    double one, crowd, large;                      /* tok/s while all generate; large: 64 streams */
    double first_p50, first_p99, gap_p50, gap_p99; /* of the crowd, ms */
    double others_p50, during_p99;     /* gaps of 8 without and with a long prompt, ms */
    double long_alone, long_among;     /* until its first token, ms */
    int n_long, n_shared;              /* tokens */
    double prefix_first, prefix_again; /* the same */
    double client_cpu, seconds;
} server_figures;

/* a / b; 0 where b was not measured */
static inline double share(double a, double b)
{
    return b > 0 ? a / b : 0;
}

/* A promise of the server, and what came of it. */
typedef struct verdict {
    const char *name, *text;
    double value, bound;
    bool least; /* the bound is the least value; else the most */
} verdict;
enum { VERDICTS_MAX = 8 };

/* ---- bench_rates.c ---- */

/* The library, ready for the tests of --serve, and what is known of it before. To be closed,
 * whatever comes back. */
int rates_open(const bench_plan *p, const bench_source *src, bench_side *out, library_figures *f);
/* The rates of both, by turns: in each of n rounds, after one that does not count, library and
 * server make everything once, or for a moment where once is less, so that what disturbs the
 * machine for a while falls on both. Medians. */
int measure_rates(bench_side *library, const traffic_plan *server, int n, library_figures *l,
                  server_figures *s);
/* traffic_run() that adds the client's time to *f and fails if a request did. */
int traffic_go(const traffic_plan *plan, server_figures *f, traffic_result *out);

/* ---- bench_verdicts.c ---- */

/* Which promises there are for this machine and model, and what the figures say. Returns how many.
 */
size_t list_verdicts(const library_figures *l, const server_figures *s, verdict *out);
void print_verdicts(const library_figures *l, const server_figures *s);
json_t *verdicts_json(const library_figures *l, const server_figures *s);

/* bench --server URL, bench --serve */
int bench_url(const bench_plan *p);
int bench_own(const bench_plan *p);

#endif
