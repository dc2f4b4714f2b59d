/* parse_tools.c - what vendor tools print, read with suspicion: pure functions over any bytes.
 * A line that does not look as expected is skipped; nothing is guessed. */
#include "device/probe.h"

#include <stdio.h>

typedef struct slice {
    const char *p;
    size_t n;
} slice;

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static slice trim(slice s)
{
    while (s.n && is_space(s.p[0]))
        s.p++, s.n--;
    while (s.n && is_space(s.p[s.n - 1]))
        s.n--;
    return s;
}

/* Cuts what stands before `sep` (or all) off the front of *rest. False at the end. */
static bool next(slice *rest, char sep, slice *out)
{
    if (!rest->p)
        return false;
    const char *end = memchr(rest->p, sep, rest->n);
    size_t n = end ? (size_t)(end - rest->p) : rest->n;
    *out = (slice){rest->p, n};
    *rest = end ? (slice){end + 1, rest->n - n - 1} : (slice){NULL, 0};
    return true;
}

static const char *find(slice s, const char *what)
{
    return s.n ? memmem(s.p, s.n, what, strlen(what)) : NULL;
}

/* Decimal digits at the front, cut off; false if there are none or too many for 64 bits. */
static bool number(slice *s, uint64_t *out)
{
    uint64_t v = 0;
    size_t i = 0;
    for (; i < s->n && is_digit(s->p[i]); i++)
        if (!bnet_mul(v, 10, &v) || !bnet_add(v, (uint64_t)(s->p[i] - '0'), &v))
            return false;
    if (i == 0)
        return false;
    *s = (slice){s->p + i, s->n - i};
    *out = v;
    return true;
}

static bool whole_number(slice s, uint64_t max, uint64_t *out)
{
    s = trim(s);
    return number(&s, out) && s.n == 0 && *out <= max;
}

/* "12.4", "550.54.15": digits and dots, beginning with a digit. Copies what is there. */
static bool version(slice s, char *out, size_t cap)
{
    size_t n = 0;
    while (n < s.n && (is_digit(s.p[n]) || (n > 0 && s.p[n] == '.')))
        n++;
    while (n > 0 && s.p[n - 1] == '.')
        n--;
    if (n == 0 || n >= cap)
        return false;
    memcpy(out, s.p, n);
    out[n] = '\0';
    return true;
}

void bnet_copy_name(char *dst, size_t cap, const char *src, size_t n)
{
    size_t used = 0;
    for (size_t i = 0; i < n && src[i];) {
        int len = bnet_utf8_len(src + i, n - i);
        size_t step = len > 0 ? (size_t)len : 1;
        if (used + step >= cap)
            break;
        if (len <= 0)
            dst[used++] = '?';
        else if ((unsigned char)src[i] > ' ' && src[i] != 0x7f)
            for (size_t k = 0; k < step; k++)
                dst[used++] = src[i + k];
        else if (used && dst[used - 1] != ' ')
            dst[used++] = ' ';
        i += step;
    }
    while (used && dst[used - 1] == ' ')
        used--;
    dst[used] = '\0';
}

/* ---- NVIDIA ---- */

static bool compute_capability(slice s, int *major, int *minor)
{
    uint64_t a, b;
    s = trim(s);
    if (!number(&s, &a) || s.n == 0 || s.p[0] != '.' || a > 99)
        return false;
    if (!whole_number((slice){s.p + 1, s.n - 1}, 99, &b))
        return false;
    *major = (int)a;
    *minor = (int)b;
    return true;
}

enum { SMI_INDEX, SMI_UUID, SMI_NAME, SMI_MEMORY, SMI_CC, SMI_DRIVER, SMI_FIELDS };

static bool smi_line(slice line, bnet_gpu *g, slice *uuid, slice *driver)
{
    slice f[SMI_FIELDS];
    uint64_t id, mib;
    for (int i = 0; i < SMI_FIELDS; i++)
        if (!next(&line, ',', &f[i]))
            return false;
    if (line.p || !whole_number(f[SMI_INDEX], 1023, &id))
        return false;
    *g = (bnet_gpu){.device_id = (int)id};
    bnet_copy_name(g->name, sizeof g->name, f[SMI_NAME].p, f[SMI_NAME].n);
    if (!g->name[0])
        return false;
    /* "[N/A]" in a field (memory of integrated parts) leaves it unknown */
    if (whole_number(f[SMI_MEMORY], UINT64_MAX >> 20, &mib))
        g->total_memory = mib << 20;
    if (compute_capability(f[SMI_CC], &g->cc_major, &g->cc_minor)) {
        bnet_gpu_caps caps = bnet_gpu_capabilities(g->cc_major, g->cc_minor);
        g->fp16 = caps.fp16;
        g->bf16 = caps.bf16;
    }
    *uuid = trim(f[SMI_UUID]);
    *driver = trim(f[SMI_DRIVER]);
    return true;
}

int bnet_parse_nvidia_smi(const char *s, size_t n, bnet_gpu *out, int max,
                          char (*uuids)[BNET_UUID_MAX], char *driver, size_t driver_cap)
{
    slice rest = {s, n}, line, uuid, drv;
    int count = 0;
    if (driver_cap)
        driver[0] = '\0';
    while (count < max && next(&rest, '\n', &line)) {
        if (!smi_line(line, &out[count], &uuid, &drv))
            continue;
        if (uuids)
            bnet_copy_name(uuids[count], BNET_UUID_MAX, uuid.p, uuid.n);
        version(drv, driver, driver_cap);
        count++;
    }
    return count;
}

/* What stands behind the mark; nothing if it is not there. */
static slice after(slice s, const char *mark)
{
    const char *at = find(s, mark);
    if (!at)
        return (slice){NULL, 0};
    size_t skip = (size_t)(at - s.p) + strlen(mark);
    return (slice){s.p + skip, s.n - skip};
}

static bool version_after(slice s, const char *mark, char *out, size_t cap)
{
    return version(trim(after(s, mark)), out, cap);
}

bool bnet_parse_nvcc(const char *s, size_t n, char *out, size_t cap)
{
    /* "Cuda compilation tools, release 13.0, V13.0.88" */
    return version_after((slice){s, n}, "release ", out, cap);
}

bool bnet_parse_cuda_json(const char *s, size_t n, char *out, size_t cap)
{
    /* {"cuda" : {"name" : "CUDA SDK", "version" : "12.4.1"}, "cuda_cudart" : ... */
    slice object = after((slice){s, n}, "\"cuda\""), inside;
    return next(&object, '}', &inside) &&
           version(after(after(inside, "\"version\""), "\""), out, cap);
}

/* "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build": the first
 * word of the first line that begins with a digit and has a dot */
bool bnet_parse_nvidia_proc(const char *s, size_t n, char *out, size_t cap)
{
    slice rest = {s, n}, line, word;
    if (!next(&rest, '\n', &line) || !find(line, "NVRM"))
        return false;
    while (next(&line, ' ', &word))
        if (word.n && is_digit(word.p[0]) && memchr(word.p, '.', word.n))
            return version(word, out, cap);
    return false;
}

/* ---- AMD ---- */

/* "GPU[0]\t\t: Device Name: \tAMD Instinct MI300X": index, key and value */
static bool rocm_line(slice line, uint64_t *id, slice *key, slice *value)
{
    line = trim(line);
    if (line.n < 4 || memcmp(line.p, "GPU[", 4) != 0)
        return false;
    line = (slice){line.p + 4, line.n - 4};
    if (!number(&line, id) || *id > 1023 || !line.n || line.p[0] != ']')
        return false;
    line = trim((slice){line.p + 1, line.n - 1});
    if (!line.n || line.p[0] != ':')
        return false;
    line = (slice){line.p + 1, line.n - 1};
    slice k;
    if (!next(&line, ':', &k) || !line.p)
        return false;
    *key = trim(k);
    *value = trim(line);
    return true;
}

static bool is_key(slice key, const char *name)
{
    return key.n == strlen(name) && memcmp(key.p, name, key.n) == 0;
}

/* The marketing name is best, then the series. */
static int name_rank(slice key)
{
    static const char *const keys[] = {"Card series", "Card Series", "Device Name"};
    for (int i = 0; i < (int)BNET_COUNT(keys); i++)
        if (is_key(key, keys[i]))
            return i + 1;
    return 0;
}

int bnet_parse_rocm_smi(const char *s, size_t n, bnet_gpu *out, int max)
{
    slice rest = {s, n}, line, key, value;
    int rank[BNET_GPUS_MAX] = {0}, count = 0;
    uint64_t id;
    max = BNET_MIN(max, BNET_GPUS_MAX);
    while (next(&rest, '\n', &line)) {
        if (!rocm_line(line, &id, &key, &value) || !value.n)
            continue;
        int i = 0;
        while (i < count && out[i].device_id != (int)id)
            i++;
        if (i == max)
            continue;
        if (i == count)
            out[count++] = (bnet_gpu){.device_id = (int)id, .name = "AMD GPU"};
        int r = name_rank(key);
        if (r > rank[i] && !is_key(value, "N/A")) {
            bnet_copy_name(out[i].name, sizeof out[i].name, value.p, value.n);
            rank[i] = r;
        }
    }
    return count;
}

bool bnet_parse_rocm_version(const char *s, size_t n, char *out, size_t cap)
{
    /* "ROCM-SMI version: 2.3.1+8e1a6c5" and "ROCM-SMI-LIB version: 7.3.0" */
    return version_after((slice){s, n}, "ROCM-SMI version:", out, cap);
}

/* ---- CUDA_VISIBLE_DEVICES ---- */

static int entry_device(slice e, int n, const char (*uuids)[BNET_UUID_MAX])
{
    uint64_t index;
    if (whole_number(e, INT32_MAX, &index))
        return index < (uint64_t)n ? (int)index : -1;
    int found = -1;
    for (int i = 0; uuids && e.n > 4 && memcmp(e.p, "GPU-", 4) == 0 && i < n; i++)
        if (strncmp(uuids[i], e.p, e.n) == 0)
            found = found < 0 ? i : n; /* n: two devices share the prefix */
    return found < n ? found : -1;
}

int bnet_cuda_visible(const char *visible, int n, const char (*uuids)[BNET_UUID_MAX], int *order)
{
    if (!visible) {
        for (int i = 0; i < n; i++)
            order[i] = i;
        return n;
    }
    slice rest = {visible, strlen(visible)}, entry;
    int count = 0;
    while (next(&rest, ',', &entry)) {
        int device = entry_device(trim(entry), n, uuids);
        if (device < 0)
            break;
        for (int i = 0; i < count; i++)
            if (order[i] == device)
                return 0;
        order[count++] = device;
    }
    return count;
}
