/* foreign.c - recognises files that are given as a model by mistake: pointers instead of files, web
 * pages saved under the name of a model, checkpoints of other programs, archives. Hides by which
 * bytes each one is known. */
#include "format/foreign.h"

#include "base/file.h"

#include <stdio.h>

#define SAFETENSORS_TO_GGUF "; convert the folder it lies in: bitnet convert FOLDER OUT.gguf"

/* ---- known by their first bytes ---- */

typedef struct magic {
    const char *bytes;
    size_t n;
    const char *is;
} magic;

#define MAGIC(bytes, is)                                                                           \
    {                                                                                              \
        bytes, sizeof bytes - 1, is                                                                \
    }
static const magic magics[] = {
    MAGIC("PK\3\4", "a ZIP archive, as PyTorch writes checkpoints; take the model's safetensors "
                    "files instead and convert them: bitnet convert FOLDER OUT.gguf"),
    MAGIC("lmgg", "a GGML file from before GGUF; convert the original checkpoint anew"),
    MAGIC("fmgg", "a GGMF file from before GGUF; convert the original checkpoint anew"),
    MAGIC("tjgg", "a GGJT file from before GGUF; convert the original checkpoint anew"),
    MAGIC("algg", "a GGLA adapter, not a model"),
    MAGIC("FUGG", "a big-endian GGUF file; only little-endian ones can be read"),
    MAGIC("\x1f\x8b", "compressed with gzip; unpack it first: gunzip FILE"),
    MAGIC("\x28\xb5\x2f\xfd", "compressed with zstd; unpack it first: unzstd FILE"),
    MAGIC("\xfd\x37zXZ", "compressed with xz; unpack it first: unxz FILE"),
    MAGIC("BZh", "compressed with bzip2; unpack it first: bunzip2 FILE"),
    MAGIC("7z\xbc\xaf\x27\x1c", "a 7-Zip archive; unpack it first"),
    MAGIC("MZqFpD", "a llamafile, a program with a model inside; take the GGUF file out of it: "
                    "unzip FILE '*.gguf'"),
    MAGIC("\x89HDF", "an HDF5 file, as Keras writes; take the model's safetensors files instead"),
};

static const char *by_magic(const uint8_t *data, size_t n)
{
    for (size_t i = 0; i < sizeof magics / sizeof *magics; i++)
        if (n >= magics[i].n && memcmp(data, magics[i].bytes, magics[i].n) == 0)
            return magics[i].is;
    if (n >= 2 && data[0] == 0x80 && data[1] >= 2 && data[1] <= 5)
        return "a Python pickle, as PyTorch writes checkpoints; it could run any code and is never "
               "loaded: take the model's safetensors files instead";
    return NULL;
}

/* A safetensors file begins with the length of its JSON header. */
static bool is_safetensors(const uint8_t *data, size_t n)
{
    return n > 9 && bnet_u64(data) >= 2 && bnet_u64(data) < (UINT64_C(1) << 30) && data[8] == '{' &&
           (data[9] == '"' || data[9] == '}' || data[9] == ' ');
}

/* Space was reserved for a download that brought nothing. */
static bool is_blank(const uint8_t *data, size_t n)
{
    for (size_t i = 0; i < BNET_MIN(n, 4096); i++)
        if (data[i])
            return false;
    return n >= 16;
}

/* ---- text ---- */

static bool begins(const char *s, size_t n, const char *word)
{
    for (; *word; word++, s++, n--)
        if (n == 0 || (*s >= 'A' && *s <= 'Z' ? *s + 32 : *s) != *word)
            return false;
    return true;
}

/* "size 1187801280" of a pointer; 0: none. */
static uint64_t pointer_size(const char *s, size_t n)
{
    uint64_t size = 0;
    for (size_t i = 0; i + 6 < n; i++) {
        if (memcmp(s + i, "\nsize ", 6) != 0)
            continue;
        for (i += 6; i < n && s[i] >= '0' && s[i] <= '9' && size < UINT64_MAX / 10 - 1; i++)
            size = size * 10 + (uint64_t)(s[i] - '0');
    }
    return size;
}

static void tell_pointer(const char *s, size_t n, char *buf, size_t cap)
{
    uint64_t size = pointer_size(s, n);
    size_t used = (size_t)snprintf(buf, cap, "a git-lfs pointer that stands for the model");
    if (size && used < cap)
        used += (size_t)snprintf(buf + used, cap - used, " (%llu bytes)", (unsigned long long)size);
    if (used < cap)
        snprintf(buf + used, cap - used,
                 "; fetch the model itself: run git lfs pull in its folder, or download the file");
}

/* True if nothing in the beginning is a control character of a binary file. */
static bool is_text(const uint8_t *data, size_t n)
{
    for (size_t i = 0; i < BNET_MIN(n, 512); i++)
        if ((data[i] < 0x20 && data[i] != '\n' && data[i] != '\r' && data[i] != '\t') ||
            data[i] == 0x7f)
            return false;
    return true;
}

static bool tell_text(const uint8_t *data, size_t n, char *buf, size_t cap)
{
    const char *s = (const char *)data;
    char quoted[80];
    size_t left = BNET_MIN(n, 4096);
    if (begins(s, left, "\xef\xbb\xbf"))
        s += 3, left -= 3;
    while (left && (*s == ' ' || *s == '\n' || *s == '\r' || *s == '\t'))
        s++, left--;
    bnet_quote(s, BNET_MIN(left, 60), quoted, sizeof quoted);
    if (begins(s, left, "version https://git-lfs."))
        tell_pointer(s, left, buf, cap);
    else if (begins(s, left, "<!doctype") || begins(s, left, "<html") || begins(s, left, "<head"))
        snprintf(buf, cap,
                 "an HTML page that the download saved in place of the model; use the link of the "
                 "file itself (on Hugging Face .../resolve/main/FILE.gguf), and log in if asked");
    else if (begins(s, left, "<?xml") || begins(s, left, "{") || begins(s, left, "["))
        snprintf(buf, cap,
                 "%s text (%s), most often what a failed download says; download the file again",
                 *s == '<' ? "XML" : "JSON", quoted);
    else if (left && is_text(data, n))
        snprintf(buf, cap, "plain text (%s); if it was a download, download the file again",
                 quoted);
    else
        return false;
    return true;
}

bool bnet_foreign_tell(const uint8_t *data, size_t n, char *buf, size_t cap)
{
    const char *is = by_magic(data, n);
    if (is_safetensors(data, n))
        is = "a safetensors file" SAFETENSORS_TO_GGUF;
    else if (!is && is_blank(data, n))
        is = "zeros from its beginning, as of a download that was not finished; download "
             "the file again";
    if (!is)
        return tell_text(data, n, buf, cap);
    snprintf(buf, cap, "%s", is);
    return true;
}

/* ---- folders ---- */

bool bnet_foreign_folder(const char *path, char *buf, size_t cap)
{
    char name[256], shown[300];
    bnet_quote(path, strlen(path), shown, sizeof shown);
    if (bnet_folder_find(path, "config.json", name, sizeof name)) {
        snprintf(buf, cap,
                 "a folder with a Hugging Face checkpoint; convert it first: bitnet convert %s "
                 "OUT.gguf",
                 shown);
        return true;
    }
    if (!bnet_folder_find(path, ".gguf", name, sizeof name))
        return false;
    bnet_quote(name, strlen(name), shown, sizeof shown);
    snprintf(buf, cap, "a directory; name a file in it, such as %s", shown);
    return true;
}
