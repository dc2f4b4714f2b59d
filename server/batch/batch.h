/* batch.h - many requests from a file, answers into another: the OpenAI batch format through the
 * same handlers and the same scheduler as the server, without HTTP.
 *
 * IN has one JSON object a line: custom_id, method ("POST"), url, body. OUT gets one line for each,
 * in the order in which they end: id ("batch_req_N": N is the line of IN), custom_id, response
 * {status_code, request_id, body} or error {code, message}. A line that stands in OUT in full is
 * acknowledged: it is not computed again when the same batch is run again. */
#ifndef SRV_BATCH_H
#define SRV_BATCH_H

#include "config.h"

/* How far it is. Lines of other shards are not counted. */
typedef struct srv_batch_progress {
    size_t n_known;              /* acknowledged by an earlier run */
    size_t n_answered, n_failed; /* by this one; failed: a status of 400 or more, or no request */
    size_t n_running;
    uint64_t in_bytes, in_size; /* of IN: read so far, all of it (0: not known) */
} srv_batch_progress;

typedef struct srv_batch_options {
    const char *in, *out;
    size_t shard, n_shards; /* computes the lines whose number is shard modulo n_shards, 1.. */
    int n_parallel;         /* requests at a time */
    long pause_ms;          /* before a refused request is made again; it grows; 0: 50 */
    void (*on_progress)(void *user,
                        const srv_batch_progress *progress); /* any thread; NULL: none */
    void *user;
} srv_batch_options;

/* Loads the models that the configuration names and computes what OUT does not have. A last line of
 * OUT that was cut is removed first. Memory does not depend on the length of IN but for four bytes
 * a line. When `stop` says so, what runs is cancelled and can be run again. *progress is filled
 * also on failure. Fails: IO naming the file, ARGUMENT (OUT is not of this IN, or another batch
 * writes it), CANCELLED, what loading fails with. */
bitnet_status srv_batch(const srv_config *config, const srv_batch_options *options,
                        bitnet_cancel_fn stop, void *stop_user, srv_batch_progress *progress,
                        bitnet_error *err);

#endif
