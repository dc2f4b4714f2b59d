/* emulated_fast.h - how an emulated kernel is written: as what the whole launch means. */
#ifndef EMULATED_FAST_H
#define EMULATED_FAST_H

/* A launch is one call: thread 0 does all. */
#define FAST(name, args)                                                                           \
    static void name##_all(const args *a);                                                         \
    void name(void *p);                                                                            \
    void name(void *p)                                                                             \
    {                                                                                              \
        if (bnet_emulated_thread == 0)                                                             \
            name##_all(p);                                                                         \
    }                                                                                              \
    static void name##_all(const args *a)

/* Does BITNET_EMULATED_WRONG name this kernel? */
int emulated_wrong(const char *kernel);
/* Then what it is given (before) or has left is spoilt (emulated_spoil.c). */
void bnet_emulated_spoil(const char *kernel, int before, void *args);

#endif
