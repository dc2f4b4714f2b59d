/* receipt_evidence.c - whether what a receipt names could have happened together: kernels and
 * machine, formats and weights, counts and layers, facts and model file. */
#include "device/cpu_features.h"
#include "receipt/receipt_check.h"
#include "bench/read_limit.h"
#include "model/arch.h"
#include "ops/inspect.h"
#include "ops/open.h"

static const uint32_t arm_features = BNET_CPU_NEON | BNET_CPU_DOTPROD | BNET_CPU_I8MM |
                                     BNET_CPU_BF16 | BNET_CPU_SVE | BNET_CPU_SVE2 |
                                     BNET_CPU_SVEI8MM | BNET_CPU_FP16 | BNET_CPU_FHM;

static bool begins(const char *s, const char *with)
{
    return strncmp(s, with, strlen(with)) == 0;
}

/* ---- instruction sets ---- */

/* Features a machine of the receipt's architecture may have: the last word of environment.OS. An
 * architecture without sets of its own here has any. */
static uint32_t features_of(const checking *c)
{
    const char *os = text_at(c, "environment.OS"), *space = strrchr(os, ' ');
    const char *machine = space ? space + 1 : os;
    if (strcmp(machine, "aarch64") == 0 || strcmp(machine, "arm64") == 0)
        return arm_features;
    if (strcmp(machine, "x86_64") == 0 || strcmp(machine, "amd64") == 0)
        return ~arm_features;
    return UINT32_MAX;
}

/* Sets that are none of this library's, as of kernels a caller registered, need nothing known. */
static uint32_t needs_of(const char *isa)
{
    uint32_t needs = 0;
    return bnet_cpu_isa_needs(isa, &needs, NULL) == BITNET_OK ? needs : 0;
}

static bool check_provider(checking *c, uint32_t allowed)
{
    char buf[64];
    const char *name = text_at(c, "environment.provider"), *backend = text_at(c, "backend");
    const bnet_provider *p = bnet_provider_find(name);
    if (!name[0])
        return true;
    if (!p)
        return no(c, "environment.provider \"%s\" is unknown", shown(name, buf));
    if (p->device != BNET_DEV_CPU && strcmp(bnet_device_name(p->device), backend) != 0)
        return no(c, "environment.provider %s is not of %.20s", name, backend);
    return !p->isa || (needs_of(p->isa) & ~allowed) == 0 ||
           no(c, "environment.provider %s does not fit environment.isa and OS", name);
}

/* Halves are multiplied on a GPU only; receipts of earlier versions do not say. */
static bool check_precision(checking *c)
{
    char buf[64];
    const char *name = text_at(c, "environment.precision"), *backend = text_at(c, "backend");
    bool fp32 = !at(c->root, "environment.precision") || strcmp(name, "fp32") == 0;
    if (!fp32 && strcmp(name, "fp16") != 0 && strcmp(name, "bf16") != 0)
        return no(c, "environment.precision \"%s\" is none of fp32, fp16, bf16", shown(name, buf));
    return fp32 || strcmp(backend, "cuda") == 0 ||
           no(c, "environment.precision %s is not of %.20s", name, backend);
}

bool bnet_evidence_isa(checking *c)
{
    char buf[64];
    const char *isa = text_at(c, "environment.isa");
    uint32_t machine = features_of(c), allowed = machine;
    if (strcmp(isa, "best") != 0 && bnet_cpu_isa_needs(isa, &allowed, NULL) != BITNET_OK)
        return no(c, "environment.isa \"%s\" is unknown", shown(isa, buf));
    if (allowed & ~machine)
        return no(c, "environment.isa %s is not of environment.OS", isa);
    for (size_t i = 0; i < n_ids(c); i++) {
        const bnet_kernel_record *k = bnet_kernel_row_find(id_at(c, i));
        const char *dot = k && k->device == BNET_DEV_CPU ? strrchr(k->id, '.') : NULL;
        uint32_t needs = dot ? needs_of(dot + 1) : 0;
        if (needs & ~machine)
            return no(c, "kernel %s is of another architecture than environment.OS", k->id);
        if (needs & ~allowed)
            return no(c, "kernel %s is beyond environment.isa %s", k->id, isa);
    }
    return check_provider(c, allowed) && check_precision(c);
}

/* ---- formats ---- */

/* Is there a kernel of the op and the format? */
static bool has_format(const checking *c, bnet_op op, bnet_format format)
{
    for (size_t i = 0; i < n_ids(c); i++) {
        const bnet_kernel_record *k = find_kernel(c, id_at(c, i));
        if (k && does_op(k, op) && k->format == format)
            return true;
    }
    return false;
}

static bool each_has(checking *c, bnet_op op, bnet_op other)
{
    for (size_t i = 0; i < n_ids(c); i++) {
        const bnet_kernel_record *k = find_kernel(c, id_at(c, i));
        if (k && k->op == op && !has_format(c, other, k->format))
            return no(c, "kernel %s without %s of its format", k->id, bnet_op_name(other));
    }
    return true;
}

bool bnet_evidence_cache(checking *c)
{
    return each_has(c, BNET_OP_ATTENTION, BNET_OP_KV_STORE) &&
           each_has(c, BNET_OP_KV_STORE, BNET_OP_ATTENTION);
}

static bool in_types(const json_t *types, bnet_format format)
{
    for (size_t i = 0; i < json_array_size(types); i++)
        if (bnet_format_find(json_string_value(json_array_get(types, i))) == format)
            return true;
    return false;
}

static bool check_types(checking *c, const json_t *types)
{
    char buf[64];
    for (size_t i = 0; i < json_array_size(types); i++) {
        const char *s = json_string_value(json_array_get(types, i));
        if (!s)
            return no(c, "quantization.types_used %zu is no text", i);
        if (!has_format(c, BNET_OP_LINEAR, bnet_format_find(s)))
            return no(c, "quantization.types_used names %s, no linear kernel does", shown(s, buf));
        for (size_t k = 0; k < i; k++)
            if (strcmp(json_string_value(json_array_get(types, k)), s) == 0)
                return no(c, "quantization.types_used names %s twice", s);
    }
    return true;
}

bool bnet_evidence_formats(checking *c)
{
    const json_t *types = at(c->root, "quantization.types_used");
    const char *type = text_at(c, "model_info.quantization_type");
    bool ternary = false;
    if (!check_types(c, types))
        return false;
    for (size_t i = 0; i < n_ids(c); i++) {
        const bnet_kernel_record *k = find_kernel(c, id_at(c, i));
        if (!k || k->op != BNET_OP_LINEAR)
            continue;
        if (!in_types(types, k->format))
            return no(c, "quantization.types_used lacks %s of kernel %s",
                      bnet_format_name(k->format), k->id);
        ternary = ternary || bnet_format_ternary(k->format);
    }
    return ternary || !ternary_type(type) ||
           no(c, "the weights are %s, but no linear kernel is ternary", type);
}

/* ---- counts ---- */

static double calls_of_op(const checking *c, bnet_op op)
{
    const json_t *calls = at(c->root, "kernel_calls");
    double sum = 0;
    for (size_t i = 0; i < n_ids(c); i++) {
        const bnet_kernel_record *k = find_kernel(c, id_at(c, i));
        double each = 1;
        if (!k || !does_op(k, op))
            continue;
        if (k->op == BNET_OP_LAYERS) /* one call for all of them */
            each = number_at(c, "model_info.layers");
        sum += each * json_number_value(json_object_get(calls, id_at(c, i)));
    }
    return sum;
}

bool bnet_evidence_layers(checking *c)
{
    static const bnet_op ops[] = {BNET_OP_KV_STORE, BNET_OP_ATTENTION, BNET_OP_GLU};
    double layers = number_at(c, "model_info.layers");
    for (size_t i = 0; i < BNET_COUNT(ops); i++) {
        double n = calls_of_op(c, ops[i]);
        if (n < layers || (uint64_t)n % (uint64_t)layers != 0)
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

/* ---- the model file ---- */

/* The type all projections share, else "mixed". */
static const char *weight_type(const bnet_gguf *g)
{
    const char *type = NULL;
    for (size_t i = 0; i < bnet_gguf_n_tensors(g); i++) {
        const bnet_tensor *t = bnet_gguf_tensor_at(g, i);
        if (!begins(t->name, "blk.") || t->n_dims < 2)
            continue;
        const char *name = bnet_type_find(t->type)->name;
        if (type && strcmp(type, name) != 0)
            return "mixed";
        type = name;
    }
    return type ? type : "";
}

static bool same_facts(checking *c, const bnet_gguf *g, const bnet_hparams *h)
{
    const bnet_tensor *embd = bnet_gguf_tensor(g, "token_embd.weight");
    const struct {
        const char *path;
        uint64_t value;
    } facts[] = {
        {"model_info.layers", (uint64_t)h->n_layers},
        {"model_info.hidden_size", (uint64_t)h->n_embd},
        {"model_info.num_attention_heads", (uint64_t)h->n_heads},
        {"model_info.num_key_value_heads", (uint64_t)h->n_kv_heads},
        {"model_info.vocab_size", embd ? embd->ne[1] : 0},
        {"model_info.file_bytes", bnet_gguf_file_bytes(g)},
        {"performance_baseline.weight_bytes_per_token", bnet_weight_bytes(g, h)},
    };
    const char *type = text_at(c, "model_info.quantization_type");
    char buf[64];
    for (size_t i = 0; i < BNET_COUNT(facts); i++)
        if ((uint64_t)json_integer_value(at(c->root, facts[i].path)) != facts[i].value)
            return no(c, "%s is %.0f, of the file %llu", facts[i].path, number_at(c, facts[i].path),
                      (unsigned long long)facts[i].value);
    if (strcmp(text_at(c, "model_info.architecture"), h->arch) != 0)
        return no(c, "model_info.architecture is \"%s\", of the file %s",
                  shown(text_at(c, "model_info.architecture"), buf), h->arch);
    return strcmp(type, weight_type(g)) == 0 ||
           no(c, "model_info.quantization_type is \"%s\", of the file %s", shown(type, buf),
              weight_type(g));
}

bool bnet_evidence_model(checking *c)
{
    bnet_gguf *g = NULL;
    bnet_hparams h;
    bitnet_error err = {0};
    bitnet_status st = bnet_gguf_open(c->o->model_path, NULL, &g, &err);
    if (st == BITNET_OK)
        st = bnet_hparams_read(g, &h, &err);
    if (st == BITNET_OK)
        h.tied_head = bnet_gguf_tensor(g, "output.weight") == NULL;
    bool same = st == BITNET_OK ? same_facts(c, g, &h) : no(c, "%.300s", err.message);
    bnet_gguf_close(g);
    return same;
}
