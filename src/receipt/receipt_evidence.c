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

/* Is the instruction set that of a provider which is preferred to p, or of another architecture? */
static bool is_beyond(const char *isa, const bnet_provider *p)
{
    const bnet_provider *q;
    uint32_t has = needs_of(p->isa), needs = needs_of(isa), arm = arm_features;
    if ((has & arm && needs & ~arm) || (has & ~arm && needs & arm))
        return true;
    for (size_t i = 0; (q = bnet_provider_at(i)) != NULL && q != p; i++)
        if (q->device == BNET_DEV_CPU && q->isa && strcmp(q->isa, isa) == 0)
            return true;
    return false;
}

/* The provider is the best that the CPU has for ternary matrices: no kernel for them is of a better
 * one. A CPU has others beside its best, and what is tuned may take them. */
static bool serves_ternary(checking *c, const bnet_provider *p)
{
    for (size_t i = 0; i < n_ids(c); i++) {
        const bnet_kernel_record *k = bnet_kernel_row_find(id_at(c, i));
        if (k && k->op == BNET_OP_LINEAR && bnet_format_ternary(k->format) &&
            is_beyond(k->isa, p))
            return no(c, "kernel %s is beyond environment.provider %s", k->id, p->name);
    }
    return true;
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
    bool on_cpu = strcmp(backend, "cpu") == 0;
    if (on_cpu ? p->device != BNET_DEV_CPU : strcmp(bnet_device_name(p->device), backend) != 0)
        return no(c, "environment.provider %s is not of %.20s", name, backend);
    if (p->isa && needs_of(p->isa) & ~allowed)
        return no(c, "environment.provider %s does not fit environment.isa and OS", name);
    return !on_cpu || !p->isa || serves_ternary(c, p);
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

/* ---- GPUs ---- */

/* The text behind the last `key` in s; "": there is none. */
static const char *behind(const char *s, const char *key)
{
    const char *found = "";
    for (const char *at_key = s; (at_key = strstr(at_key, key)) != NULL; at_key += strlen(key))
        found = at_key + strlen(key);
    return found;
}

/* GPU_INFO names the kinds that the startup summary detected, and no others. */
static bool kinds_agree(checking *c)
{
    const char *info = text_at(c, "environment.GPU_INFO");
    const char *list = behind(text_at(c, "backend_summary"), "detected=[");
    for (int k = 0; k < BNET_DEV_CPU; k++) {
        const char *name = bnet_device_name((bnet_device_kind)k);
        char counted[48], detected[160];
        snprintf(counted, sizeof counted, "%s ", name);
        snprintf(detected, sizeof detected, ",%.*s,", (int)strcspn(list, "]"), list);
        bool told = begins(info, counted);
        snprintf(counted, sizeof counted, ", %s ", name);
        told = told || strstr(info, counted);
        snprintf(counted, sizeof counted, ",%s,", name);
        if (told != (strstr(detected, counted) != NULL))
            return no(c, "GPU_INFO %s %s, backend_summary %s", told ? "names" : "does not name",
                      name, told ? "does not" : "does");
    }
    return true;
}

/* Kernels that a GPU of this compute capability cannot run. */
static bool levels_fit(checking *c, const char *device)
{
    double has = strtod(behind(device, "compute capability "), NULL);
    for (size_t i = 0; i < n_ids(c); i++) {
        const bnet_kernel_record *k = bnet_kernel_row_find(id_at(c, i));
        if (!k || k->device != BNET_DEV_CUDA || !k->isa || !begins(k->isa, "sm_"))
            continue;
        double needs = strtod(k->isa + 3, NULL) / 10;
        if (has + 0.01 < needs)
            return no(c, "kernel %s needs compute capability %.1f, GPU_DEVICE has %.1f", k->id,
                      needs, has);
    }
    return true;
}

/* What computed is what was found at start. The driver that stands in for one in tests has version
 * 99, and its devices say what they are. */
bool bnet_evidence_gpu(checking *c)
{
    const char *device = text_at(c, "environment.GPU_DEVICE");
    const char *info = text_at(c, "environment.GPU_INFO"), *version = behind(device, ", CUDA ");
    char found[64], buf[64];
    if (!kinds_agree(c))
        return false;
    if (strcmp(text_at(c, "backend"), "cuda") != 0)
        return true;
    snprintf(found, sizeof found, "(CUDA %.40s)", version);
    if (!version[0] || !strstr(info, found))
        return no(c, "GPU_DEVICE \"%s\" has another driver than GPU_INFO", shown(device, buf));
    if (begins(version, "99.") != begins(device, "emulated device"))
        return no(c, "GPU_DEVICE \"%s\" is not of a driver of version %.8s", shown(device, buf),
                  version);
    return levels_fit(c, device);
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
