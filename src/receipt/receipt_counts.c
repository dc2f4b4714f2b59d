/* receipt_counts.c - whether the calls of kernels are those that the tokens, batches, repeats and
 * layers of the receipt need. */
#include <math.h>
#include <stdlib.h>

#include "receipt/receipt_check.h"

/* In a receipt of one answer, calls that served others too may be parts of their passes, which
 * another thread computed meanwhile: only the rest is this answer's, pass for pass. */
static double own_calls(const checking *c, const char *id)
{
    return json_number_value(json_object_get(at(c->root, "kernel_calls"), id)) -
           json_number_value(json_object_get(at(c->root, "shared_calls"), id));
}

static double calls_of_op(const checking *c, bnet_op op)
{
    double sum = 0;
    for (size_t i = 0; i < n_ids(c); i++) {
        const bnet_kernel_record *k = find_kernel(c, id_at(c, i));
        double each = 1;
        if (!k || !does_op(k, op))
            continue;
        if (k->op == BNET_OP_LAYERS) /* one call for all of them */
            each = number_at(c, "model_info.layers");
        sum += each * own_calls(c, id_at(c, i));
    }
    return sum;
}

/* Passes that were cancelled between layers have some of their calls. */
static double cut_passes(const checking *c)
{
    return number_at(c, "cut_passes");
}

static bool was_cancelled(const checking *c)
{
    const char *finish = text_at(c, "generation.finish");
    return strcmp(finish, "cancelled") == 0 || strcmp(finish, "timeout") == 0;
}

bool bnet_evidence_layers(checking *c)
{
    static const bnet_op ops[] = {BNET_OP_KV_STORE, BNET_OP_ATTENTION, BNET_OP_GLU};
    double layers = number_at(c, "model_info.layers");
    for (size_t i = 0; i < BNET_COUNT(ops); i++) {
        double n = calls_of_op(c, ops[i]);
        bool some = n >= layers || at(c->root, "shared_calls"); /* all may have served others */
        if (cut_passes(c) == 0 && (!some || (uint64_t)n % (uint64_t)layers != 0))
            return no(c, "%.0f calls of %s are no multiple of %.0f layers", n, bnet_op_name(ops[i]),
                      layers);
    }
    return true;
}

/* A repeated pass begins with fetching its step, one of several devices with making its angles, and
 * goes through every layer. */
bool bnet_evidence_replays(checking *c)
{
    double n = number_at(c, "graph_replays"), layers = number_at(c, "model_info.layers");
    bool cpu = strcmp(text_at(c, "backend"), "cpu") == 0;
    const char *device = text_at(c, "environment.GPU_DEVICE");
    double launched = number_at(c, "unrecorded_steps");
    if ((n > 0 || launched > 0) && cpu)
        return no(c, "graph_replays is %.0f, unrecorded_steps %.0f; a CPU records nothing", n,
                  launched);
    if (launched > 0 && json_is_true(at(c->root, "environment.BITNET_STRICT_MODE")))
        return no(c, "unrecorded_steps is %.0f, strict mode allows none", launched);
    bool group = strstr(text_at(c, "backend_summary"), " split=") != NULL;
    double begun = calls_of_op(c, group ? BNET_OP_ROPE_TABLE : BNET_OP_STEP);
    if (begun < n + launched)
        return no(c, "graph_replays is %.0f, unrecorded_steps %.0f, %s only %.0f times", n,
                  launched, group ? "angles were made" : "steps were fetched", begun);
    if (calls_of_op(c, BNET_OP_ATTENTION) < n * layers)
        return no(c,
                  "graph_replays is %.0f, %.0f calls of attention are less than that times %.0f "
                  "layers",
                  n, calls_of_op(c, BNET_OP_ATTENTION), layers);
    bool none = strcmp(device, "none") == 0;
    if (at(c->root, "environment.GPU_DEVICE") && none != cpu)
        return no(c, "GPU_DEVICE is %.60s, the backend is %.20s", device, text_at(c, "backend"));
    return true;
}

/* ---- how often ---- */

/* The number of a flag of the request, "batch=512"; `otherwise` if it is not there. */
static double flag_number(const checking *c, const char *name, double otherwise)
{
    const char *s = bnet_receipt_flag(c, name);
    return s ? strtod(s, NULL) : otherwise;
}

/* Calls of linear kernels: of ternary formats, or of the others. */
static double linear_calls(const checking *c, bool ternary)
{
    double sum = 0;
    for (size_t i = 0; i < n_ids(c); i++) {
        const bnet_kernel_record *k = find_kernel(c, id_at(c, i));
        if (k && k->op == BNET_OP_LINEAR && bnet_format_ternary(k->format) == ternary)
            sum += own_calls(c, id_at(c, i));
    }
    return sum;
}

/* What is called once for every layer of every pass, or twice. */
static bool per_layer(checking *c, double passes)
{
    static const struct {
        bnet_op op;
        int times;
    } rows[] = {{BNET_OP_KV_STORE, 1},
                {BNET_OP_ATTENTION, 1},
                {BNET_OP_GLU, 1},
                {BNET_OP_ROPE, 2},
                {BNET_OP_ADD, 2}};
    double layers = number_at(c, "model_info.layers");
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        double n = calls_of_op(c, rows[i].op), each = rows[i].times * layers;
        if (n > each * passes || n < each * (passes - cut_passes(c)))
            return no(c, "%.0f calls of %s; %.0f passes through %.0f layers make %.0f", n,
                      bnet_op_name(rows[i].op), passes, layers, each * passes);
    }
    return true;
}

/* Of a model whose matrices are ternary: a layer has up to 7 of them, which read 4 inputs. Where no
 * other kernel multiplies, the head is ternary, too. */
static bool ternary_layers(checking *c, double each)
{
    double linear = linear_calls(c, true), quantize = calls_of_op(c, BNET_OP_QUANTIZE);
    double heads = linear_calls(c, false) > 0 ? 0 : fmod(linear, each);
    if (!ternary_type(text_at(c, "model_info.quantization_type")) || cut_passes(c) > 0)
        return true;
    linear -= heads;
    if (fmod(linear, each) != 0 || linear < 4 * each || linear > 7 * each)
        return no(c,
                  "%.0f calls of ternary linear kernels are not 4 to 7 times %.0f, layers times "
                  "passes",
                  linear, each);
    return (quantize >= 4 * each && quantize <= 4 * each + heads) ||
           no(c, "%.0f calls of quantize are not 4 times %.0f, layers times passes", quantize,
              each);
}

/* Passes of a run: the prompt in batches, then one for every token but the last, which is not
 * computed. What was cancelled may have ended in between; --dump-logits computes the prompt first.
 */
static bool passes_of_run(checking *c, double passes)
{
    double prompt = number_at(c, "generation.prompt_tokens");
    double made = number_at(c, "generation.output_tokens");
    double runs = number_at(c, "test_results.determinism.runs");
    double batches = ceil(prompt / fmax(flag_number(c, "batch", 512), 1));
    double want = runs * (batches + fmax(made - 1, 0));
    if (was_cancelled(c))
        return passes <= want + 1 ||
               no(c, "%.0f passes; %.0f tokens need at most %.0f", passes, made, want + 1);
    if (bnet_receipt_flag(c, "dump-logits"))
        want += 1;
    return passes == want || no(c,
                                "%.0f passes; %.0f batches of the prompt and %.0f tokens in "
                                "%.0f runs make %.0f",
                                passes, batches, made, runs, want);
}

/* A token is chosen after the norm at the end of a pass, and from the products of the head. */
static bool ends_of_run(checking *c, double each)
{
    double made = number_at(c, "generation.output_tokens");
    double runs = number_at(c, "test_results.determinism.runs"), want = runs * fmax(made, 1);
    double norms = fmod(calls_of_op(c, BNET_OP_RMSNORM), each), heads = linear_calls(c, false);
    if (bnet_receipt_flag(c, "dump-logits") || was_cancelled(c) ||
        number_at(c, "model_info.layers") < 2)
        return true;
    if (norms != fmod(want, each))
        return no(c,
                  "%.0f calls of rmsnorm leave %.0f for the ends of passes, %.0f tokens in %.0f "
                  "runs need %.0f",
                  calls_of_op(c, BNET_OP_RMSNORM), norms, made, runs, want);
    if (!ternary_type(text_at(c, "model_info.quantization_type")))
        heads = fmod(linear_calls(c, false) + linear_calls(c, true), each);
    else if (heads == 0)
        heads = fmod(linear_calls(c, true), each);
    double scans = calls_of_op(c, BNET_OP_HEAD_SCAN);
    bool exact = scans == 0;            /* else whole rows may have been asked for besides */
    if (bnet_receipt_flag(c, "logits")) /* all of some tokens were looked at, too */
        return heads >= runs * made || no(c, "%.0f calls for the head of %.0f tokens", heads, made);
    /* a copy of the head is scanned, and the rows themselves where that leaves too many */
    if (exact ? heads != runs * made : scans > 2 * runs * made || heads < scans)
        return no(c, "%.0f calls for the head, %.0f scans of it, %.0f tokens in %.0f runs", heads,
                  scans, made, runs);
    return true;
}

/* On a GPU kernels do several operations at once, and which differs from pass to pass. */
bool bnet_counts_of_passes(checking *c)
{
    double passes = calls_of_op(c, BNET_OP_EMBED), layers = number_at(c, "model_info.layers");
    double each = layers * passes;
    bool host = strcmp(text_at(c, "backend"), "host") == 0;
    bool one = !strstr(text_at(c, "backend_summary"), " split=");
    if (strcmp(text_at(c, "backend"), "cpu") != 0 && !(host && one))
        return true;
    if (!per_layer(c, passes))
        return false;
    if (passes == 0 && at(c->root, "shared_calls")) /* all served others, too */
        return true;
    if (!ternary_layers(c, each))
        return false;
    if (cut_passes(c) == 0 && fmod(calls_of_op(c, BNET_OP_RMSNORM), each) > passes)
        return no(c, "%.0f calls of rmsnorm do not fit %.0f passes through %.0f layers",
                  calls_of_op(c, BNET_OP_RMSNORM), passes, layers);
    if (strcmp(text_at(c, "request.command"), "run") != 0 || at(c->root, "shared_calls"))
        return true;
    if (cut_passes(c) > was_cancelled(c))
        return no(c, "cut_passes is %.0f in a run that %s", cut_passes(c),
                  was_cancelled(c) ? "ends with the first" : "was not cancelled");
    return passes_of_run(c, passes) && ends_of_run(c, each);
}
