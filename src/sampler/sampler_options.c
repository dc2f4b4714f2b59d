/* sampler_options.c - how a sampler chooses unless told otherwise, and what it may be told. */
#include "base/options.h"
#include "sampler/sampler.h"

#include <limits.h>

enum { VOCAB_MAX = 1 << 23 }; /* 2^23 weights of 2^40 fit a uint64_t */

void bitnet_sampler_options_init(bitnet_sampler_options *o)
{
    if (!o)
        return;
    *o = (bitnet_sampler_options){.struct_size = sizeof *o,
                                  .temperature = 0.7f,
                                  .top_k = 50,
                                  .top_p = 0.95f,
                                  .typical_p = 1.0f,
                                  .repetition_penalty = 1.0f,
                                  .penalty_window = 64};
}

bitnet_status bnet_sampler_check(const bitnet_sampler_options *o, int n_vocab, bitnet_error *err)
{
    static const char who[] = "sampler options";
    const struct {
        const char *field;
        double value, lo, hi;
    } ranges[] = {
        {"temperature", (double)o->temperature, 0, 100},
        {"top_p", (double)o->top_p, 0, 1},
        {"min_p", (double)o->min_p, 0, 1},
        {"typical_p", (double)o->typical_p, 0, 1},
        {"repetition_penalty", (double)o->repetition_penalty, (double)0.01f, 100},
        {"presence_penalty", (double)o->presence_penalty, -100, 100},
        {"frequency_penalty", (double)o->frequency_penalty, -100, 100},
    };
    bitnet_status st = bnet_check_int("sampler", "n_vocab", n_vocab, 1, VOCAB_MAX, err);
    for (size_t i = 0; st == BITNET_OK && i < BNET_COUNT(ranges); i++)
        st = bnet_check_float(who, ranges[i].field, ranges[i].value, ranges[i].lo, ranges[i].hi,
                              err);
    if (st == BITNET_OK)
        st = bnet_check_int(who, "top_k", o->top_k, 0, INT_MAX, err);
    if (st == BITNET_OK)
        st = bnet_check_int(who, "penalty_window", o->penalty_window, 0, INT_MAX, err);
    return st;
}
