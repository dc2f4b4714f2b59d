/* receipt_save.c - the text of a receipt, into a file or to a function. */
#include "base/file.h"
#include "receipt/receipt_seal.h"

/* Where the text goes: into a file, or to a function. */
typedef struct sink {
    bnet_writer *writer;
    bitnet_bytes_fn write;
    void *user;
    bitnet_error *err;
    bitnet_status st;
} sink;

static int take(const char *bytes, size_t n, void *user)
{
    sink *s = user;
    if (s->writer)
        s->st = bnet_writer_write(s->writer, bytes, n, s->err);
    else if (!s->write(s->user, bytes, n))
        s->st = bnet_fail(s->err, BITNET_CANCELLED, "receipt: cancelled");
    return s->st == BITNET_OK ? 0 : -1;
}

static bitnet_status dump(const json_t *root, sink *s)
{
    int rc = json_dump_callback(root, take, s, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    if (rc == 0 && take("\n", 1, s) == 0)
        return BITNET_OK;
    return s->st != BITNET_OK ? s->st : bnet_no_memory(s->err, "receipt");
}

bitnet_status bnet_receipt_give(const json_t *root, bitnet_bytes_fn write, void *user,
                                bitnet_error *err)
{
    return dump(root, &(sink){.write = write, .user = user, .err = err});
}

bitnet_status bnet_receipt_save(const json_t *root, const char *path, bitnet_error *err)
{
    sink s = {.err = err};
    bitnet_status st = bnet_writer_open(path, &s.writer, err);
    if (st != BITNET_OK)
        return st;
    st = dump(root, &s);
    if (st == BITNET_OK)
        return bnet_writer_commit(s.writer, err);
    bnet_writer_abort(s.writer);
    return st;
}
