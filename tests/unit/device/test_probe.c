/* test_probe.c - detection on made-up machines: drivers, tools, fakes (DET-1..6, DET-8..12,
 * DET-18). */
#include "stand_in.h"

static bnet_devices D;

typedef struct machine {
    bnet_world world;
    bnet_probe_options options;
    char dir[256];
} machine;

static char log_text[1024];

static void keep_log(void *user, bitnet_log_level level, const char *module, const char *message)
{
    (void)user, (void)module;
    size_t n = strlen(log_text);
    snprintf(log_text + n, sizeof log_text - n, "%d:%s\n", level, message);
}
static const bnet_log test_log = {keep_log, NULL};

static int setup(void **state)
{
    static machine m;
    S = (stand_in){0};
    m = (machine){.world = {.loader = &stand_in_loader}};
    make_dir(m.dir, sizeof m.dir);
    m.world.root = m.dir;
    m.world.compiled[BNET_DEV_CPU] = true;
    bnet_probe_options_init(&m.options);
    m.options.log = &test_log;
    log_text[0] = '\0';
    *state = &m;
    return 0;
}

static int teardown(void **state)
{
    machine *m = *state;
    remove_tree(m->dir);
    assert_int_equal(S.n_open, 0); /* every library was given back */
    assert_int_equal(S.vk_instances, 0);
    return 0;
}

static void probe(machine *m)
{
    bitnet_error err = {0};
    bitnet_status st = bnet_probe_world(&m->options, &m->world, &D, &err);
    if (st != BITNET_OK)
        print_error("probe: %s\n", err.message);
    assert_int_equal(st, BITNET_OK);
}

static const bnet_device_status *cuda(void)
{
    return &D.kind[BNET_DEV_CUDA];
}

/* ---- nothing there ---- */

static void test_DET_1_no_gpu_is_said_cleanly(void **state)
{
    machine *m = *state;
    probe(m);
    assert_false(bnet_gpu_available_runtime(&D));
    assert_false(bnet_gpu_compiled(&D));
    assert_false(D.wgpu);
    for (int k = 0; k < BNET_DEV_CPU; k++) {
        assert_false(D.kind[k].available);
        assert_false(D.kind[k].runnable);
        assert_int_equal(D.kind[k].n_gpus, 0);
        assert_true(D.kind[k].reason[0] && (D.kind[k].hint[0] != 0) == (k == BNET_DEV_CUDA));
    }
    assert_true(D.kind[BNET_DEV_CPU].available && D.kind[BNET_DEV_CPU].compiled);
}

static void test_DET_2_gpu_info_summary(void **state)
{
    machine *m = *state;
    bnet_str s = {0};
    probe(m);
    bnet_devices_summary(&D, &s);
    assert_string_equal(s.data, "no GPU backend available");
    bnet_str_free(&s);

    S.libraries = "libcuda.so.1 libvulkan.so.1 libOpenCL.so.1";
    S.n_cuda = 2;
    S.cuda[0] = S.cuda[1] = h200();
    S.cu_version = 12040;
    S.n_vk = 1;
    S.vk_type = 2;
    S.n_cl = 1;
    S.cl_type = 1 << 1; /* a CPU */
    probe(m);
    bnet_devices_summary(&D, &s);
    assert_string_equal(s.data, "cuda 2 device(s) (CUDA 12.4), opencl 1 device(s) (software, on "
                                "the CPU), vulkan 1 device(s) (version 1.3.277)");
    bnet_str_free(&s);

    m->options.fake = "metal,rocm";
    probe(m);
    bnet_devices_summary(&D, &s);
    assert_string_equal(s.data, "hip 1 device(s) (fake), metal 1 device(s) (fake)");
    bnet_str_free(&s);
}

/* ---- CUDA by its driver ---- */

static void test_DET_3_DET_11_cuda_device_info_query(void **state)
{
    machine *m = *state;
    S.libraries = "libcuda.so.1";
    S.n_cuda = 2;
    S.cuda[0] = S.cuda[1] = h200();
    S.cuda[1].cc_major = 7;
    S.cuda[1].cc_minor = 5;
    S.cu_version = 13000;
    put_file(m->dir, "/proc/driver/nvidia/version",
             "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\n"
             "GCC version:  gcc version 12.2.0 (GCC)\n",
             0644);
    probe(m);
    const bnet_gpu *g = &cuda()->gpus[0];
    assert_true(cuda()->available && cuda()->runnable);
    assert_false(cuda()->fake);
    assert_string_equal(cuda()->source, "driver");
    assert_string_equal(cuda()->version, "13.0");
    assert_string_equal(cuda()->driver, "580.159.04");
    assert_string_equal(cuda()->reason, "");
    assert_int_equal(cuda()->n_gpus, 2);
    assert_int_equal(g[1].device_id, 1);
    assert_int_equal(g[1].cc_major, 7);
    assert_int_equal(g[1].cc_minor, 5);
    assert_true(g[1].fp16 && !g[1].bf16);
    assert_int_equal(g->device_id, 0);
    assert_string_equal(g->name, "NVIDIA H200");
    assert_int_equal(g->cc_major, 9);
    assert_int_equal(g->cc_minor, 0);
    assert_int_equal(g->total_memory, 150110011392);
    assert_int_equal(g->multiprocessors, 132);
    assert_int_equal(g->max_threads_per_block, 1024);
    assert_int_equal(g->max_shared_memory_per_block, 49152);
    assert_int_equal(g->max_shared_memory_optin, 232448);
    assert_true(g->fp16 && g->bf16);
}

/* One device, two of which one can read the other's memory, a driver that cannot say. */
static void test_P_3_topology(void **state)
{
    machine *m = *state;
    bnet_str s = {0};
    S.libraries = "libcuda.so.1";
    S.n_cuda = 1;
    S.cuda[0] = S.cuda[1] = h200();
    S.cu_version = 13000;
    probe(m);
    bnet_topology_text(BNET_DEV_CUDA, cuda(), &s);
    assert_string_equal(s.data, "Topology: one device\n");
    bnet_str_free(&s);
    S.n_cuda = 2;
    S.cu_peers = 1u << 1;
    probe(m);
    assert_int_equal(cuda()->peers[0], 2);
    assert_int_equal(cuda()->peers[1], 0);
    bnet_topology_text(BNET_DEV_CUDA, cuda(), &s);
    assert_non_null(strstr(s.data, "         cuda:0  cuda:1"));
    assert_non_null(strstr(s.data, "\n cuda:0  -       direct"));
    assert_non_null(strstr(s.data, "\n cuda:1  host    -"));
    bnet_str_free(&s);
    S.missing = "cuDeviceCanAccessPeer";
    probe(m);
    assert_true(cuda()->available && !cuda()->peers_known);
    bnet_topology_text(BNET_DEV_CUDA, cuda(), &s);
    assert_int_equal(s.n, 0);
    bnet_str_free(&s);
}

static void test_cuda_availability(void **state)
{
    static const struct {
        const char *libraries, *missing;
        int init, count_result, n;
        bool available;
        const char *reason, *hint;
    } rows[] = {
        {NULL, NULL, 0, 0, 1, false, "libcuda.so.1 is not installed", "nvidia-smi"},
        {"libcuda.so.1", "cuDeviceTotalMem_v2", 0, 0, 1, false, "has no function cuDeviceTotal",
         ""},
        {"libcuda.so.1", NULL, 100, 0, 1, false, "cuInit: CUDA_ERROR_NO_DEVICE (100)", "gpus all"},
        {"libcuda.so.1", NULL, 803, 0, 1, false, "cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)",
         "reboot"},
        {"libcuda.so.1", NULL, 34, 0, 1, false, "CUDA_ERROR_STUB_LIBRARY", "stubs"},
        {"libcuda.so.1", NULL, 12345, 0, 1, false, "unknown CUDA error (12345)", "update"},
        {"libcuda.so.1", NULL, 0, 999, 1, false, "cuDeviceGetCount: CUDA_ERROR_UNKNOWN", "dmesg"},
        {"libcuda.so.1", NULL, 0, 0, 0, false, "CUDA_ERROR_NO_DEVICE", "CUDA_VISIBLE_DEVICES"},
        {"libcuda.so.1", NULL, 0, 0, -3, false, "CUDA_ERROR_NO_DEVICE", "CUDA_VISIBLE_DEVICES"},
        {"libcuda.so.1", NULL, 0, 0, 1, true, "", ""},
        {"libcuda.so.1", NULL, 0, 0, BNET_GPUS_MAX + 9, true, "", ""},
    };
    machine *m = *state;
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        S = (stand_in){.libraries = rows[i].libraries,
                       .missing = rows[i].missing,
                       .cu_init = rows[i].init,
                       .cu_count_result = rows[i].count_result,
                       .n_cuda = rows[i].n};
        S.cuda[0] = h200();
        probe(m);
        print_message("row %zu: %s | %s\n", i, cuda()->reason, cuda()->hint);
        assert_int_equal(cuda()->available, rows[i].available);
        assert_int_equal(cuda()->runnable, rows[i].available);
        assert_non_null(strstr(cuda()->reason, rows[i].reason));
        assert_non_null(strstr(cuda()->hint, rows[i].hint));
        assert_true(cuda()->n_gpus <= BNET_GPUS_MAX);
        assert_int_equal(bnet_gpu_available_runtime(&D), rows[i].available);
    }
}

static void test_DET_12_listing_text(void **state)
{
    (void)state;
    bnet_gpu a = h200(), b = {.device_id = 1, .name = "llvmpipe", .software = true};
    bnet_str s = {0};
    bnet_gpu_text(&a, &s);
    bnet_gpu_text(&b, &s);
    assert_string_equal(s.data, "Device 0: NVIDIA H200 (CC 9.0)\n"
                                "  Memory: 150.1 GB\n"
                                "  Multiprocessors: 132\n"
                                "  Max threads per block: 1024\n"
                                "  Shared memory per block: 49152 bytes\n"
                                "  FP16: yes\n"
                                "  BF16: yes\n"
                                "Device 1: llvmpipe [software, on the CPU]\n"
                                "  FP16: no\n"
                                "  BF16: no\n");
    bnet_str_free(&s);
}

static void test_DET_18_cuda_visible_devices(void **state)
{
    machine *m = *state;
    S.libraries = "libcuda.so.1";
    S.n_cuda = 1;
    S.cuda[0] = h200();
    m->options.visible = "";
    probe(m);
    assert_false(cuda()->available);
    assert_int_equal(S.n_opened, 0); /* the driver was not even asked */
    assert_non_null(strstr(cuda()->reason, "CUDA_VISIBLE_DEVICES is set and empty"));
    assert_non_null(strstr(cuda()->hint, "unset CUDA_VISIBLE_DEVICES"));
    /* the driver has obeyed the variable already: its list is not filtered twice */
    m->options.visible = "3";
    probe(m);
    assert_true(cuda()->available);
    assert_int_equal(cuda()->gpus[0].device_id, 0);
}

static void test_DET_18_visible_list(void **state)
{
    static const char uuids[4][BNET_UUID_MAX] = {"GPU-aaaa-1", "GPU-bbbb-2", "GPU-bbcc-3",
                                                 "GPU-dddd-4"};
    static const struct {
        const char *visible;
        int n, order[4];
    } rows[] = {
        {NULL, 4, {0, 1, 2, 3}},
        {"", 0, {0}},
        {"0", 1, {0}},
        {"0,1", 2, {0, 1}},
        {" 3 , 1 ", 2, {3, 1}},
        {"2,9,1", 1, {2}}, /* ends at the first that is nobody */
        {"-1", 0, {0}},
        {"0,-1,1", 1, {0}},
        {"NoDevFiles", 0, {0}},
        {"1,1", 0, {0}},
        {"GPU-dddd-4,GPU-aaaa", 2, {3, 0}},
        {"GPU-bb", 0, {0}}, /* ambiguous */
        {"GPU-", 0, {0}},
        {"MIG-1234", 0, {0}},
        {"99999999999999999999", 0, {0}},
        {"0,1,2,3,0", 0, {0}},
        {",0", 0, {0}},
    };
    (void)state;
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        int order[4] = {-1, -1, -1, -1};
        int n = bnet_cuda_visible(rows[i].visible, 4, uuids, order);
        print_message("CUDA_VISIBLE_DEVICES=%s\n", rows[i].visible ? rows[i].visible : "(unset)");
        assert_int_equal(n, rows[i].n);
        for (int k = 0; k < n; k++)
            assert_int_equal(order[k], rows[i].order[k]);
    }
}

/* ---- CUDA by its tools ---- */

#define SMI_TWO                                                                                    \
    "0, GPU-45b790c7-e483-7e6c-dcc1-4fbc9e64ad21, NVIDIA H200, 143771, 9.0, 580.159.04\n"          \
    "1, GPU-11111111-e483-7e6c-dcc1-4fbc9e64ad21, NVIDIA GeForce GTX 1060 6GB, 6144, 6.1, "        \
    "580.159.04\n"

static void tool(machine *m, const char *name, const char *script)
{
    char path[128];
    snprintf(path, sizeof path, "/bin/%s", name);
    put_file(m->dir, path, script, 0755);
}

static void use_tools(machine *m)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/bin:/usr/bin:/bin", m->dir);
    m->options.tool_path = path;
}

static void test_DET_3_nvidia_smi_is_the_fallback(void **state)
{
    machine *m = *state;
    tool(m, "nvidia-smi",
         "#!/bin/sh\n"
         "test \"$1\" = --query-gpu=index,uuid,name,memory.total,compute_cap,driver_version || "
         "exit 3\n"
         "test \"$2\" = --format=csv,noheader,nounits || exit 4\n"
         "cat <<E\n" SMI_TWO "E\n");
    probe(m);
    assert_false(cuda()->available); /* no path, no tools */
    use_tools(m);
    probe(m);
    assert_true(cuda()->available);
    assert_false(cuda()->runnable); /* without libcuda nothing computes */
    assert_string_equal(cuda()->source, "nvidia-smi");
    assert_string_equal(cuda()->driver, "580.159.04");
    assert_non_null(strstr(cuda()->reason, "libcuda.so.1"));
    assert_int_equal(cuda()->n_gpus, 2);
    assert_string_equal(cuda()->gpus[1].name, "NVIDIA GeForce GTX 1060 6GB");
    assert_int_equal(cuda()->gpus[0].total_memory, (uint64_t)143771 << 20);
    assert_true(cuda()->gpus[1].fp16);
    assert_false(cuda()->gpus[1].bf16);
    m->options.visible = "1";
    probe(m);
    assert_int_equal(cuda()->n_gpus, 1);
    assert_int_equal(cuda()->gpus[0].device_id, 0); /* numbered as CUDA would */
    assert_string_equal(cuda()->gpus[0].name, "NVIDIA GeForce GTX 1060 6GB");
    m->options.visible = "5";
    probe(m);
    assert_false(cuda()->available);
}

static void test_DET_3_driver_wins_over_nvidia_smi(void **state)
{
    machine *m = *state;
    S.libraries = "libcuda.so.1";
    S.n_cuda = 1;
    S.cuda[0] = h200();
    tool(m, "nvidia-smi", "#!/bin/sh\n: > \"$0.was-run\"\n");
    use_tools(m);
    probe(m);
    char mark[512];
    struct stat st;
    snprintf(mark, sizeof mark, "%s/bin/nvidia-smi.was-run", m->dir);
    assert_string_equal(cuda()->source, "driver");
    assert_int_not_equal(stat(mark, &st), 0);
}

static void test_DET_3_toolkit_version(void **state)
{
    machine *m = *state;
    probe(m);
    assert_string_equal(cuda()->toolkit, "");
    put_file(m->dir, "/usr/local/cuda/version.json",
             "{\n \"cuda\" : {\n  \"name\" : \"CUDA SDK\",\n  \"version\" : \"12.4.1\"\n }\n}\n",
             0644);
    probe(m);
    assert_string_equal(cuda()->toolkit, "12.4.1");
    char home[512];
    snprintf(home, sizeof home, "%s/opt/cuda", m->dir);
    put_file(m->dir, "/opt/cuda/version.json", "{\"cuda\":{\"version\":\"11.8.0\"}}", 0644);
    m->options.cuda_home = home;
    probe(m);
    assert_string_equal(cuda()->toolkit, "11.8.0");
    tool(m, "nvcc",
         "#!/bin/sh\necho 'nvcc: NVIDIA (R) Cuda compiler driver'\n"
         "echo 'Cuda compilation tools, release 13.0, V13.0.88'\n");
    use_tools(m);
    probe(m);
    assert_string_equal(cuda()->toolkit, "13.0");
}

/* ---- the others ---- */

static void test_DET_4_metal_only_by_fake(void **state)
{
    machine *m = *state;
    S.libraries = ALL_LIBRARIES;
    probe(m);
    assert_false(D.kind[BNET_DEV_METAL].available);
    assert_non_null(strstr(D.kind[BNET_DEV_METAL].reason, "macOS"));
    m->options.fake = "metal";
    probe(m);
    assert_true(D.kind[BNET_DEV_METAL].available && D.kind[BNET_DEV_METAL].fake);
    assert_false(D.kind[BNET_DEV_METAL].runnable);
}

static void test_DET_5_rocm_by_its_runtime(void **state)
{
    machine *m = *state;
    const bnet_device_status *s = &D.kind[BNET_DEV_HIP];
    S.libraries = "libamdhip64.so.6";
    S.n_hip = 2;
    probe(m);
    assert_true(s->available && s->runnable);
    assert_string_equal(s->source, "driver");
    assert_string_equal(s->version, "6.2");
    assert_string_equal(s->reason, "");
    assert_int_equal(s->n_gpus, 2);
    assert_string_equal(s->gpus[1].name, "AMD Instinct MI300X #1");
    assert_int_equal(s->gpus[1].device_id, 1);
    assert_int_equal(s->gpus[1].multiprocessors, 304);
    assert_int_equal(s->gpus[1].max_threads_per_block, 1024);
    assert_int_equal(s->gpus[1].max_shared_memory_per_block, 65536);
    S.n_hip = 0;
    probe(m);
    assert_false(s->available);
    assert_non_null(strstr(s->reason, "no device"));
    assert_string_equal(s->hint, ""); /* this version computes on none */
    S.hip_init = 3;
    probe(m);
    assert_false(s->available);
}

static void test_DET_5_rocm_smi_is_the_fallback(void **state)
{
    machine *m = *state;
    const bnet_device_status *s = &D.kind[BNET_DEV_HIP];
    tool(m, "rocm-smi",
         "#!/bin/sh\n"
         "case $1 in\n"
         "--showid) printf '\\n\\n======= ROCm System Management Interface =======\\n'\n"
         "  printf 'GPU[0]\\t\\t: Device Name: \\t\\tAMD Instinct MI300X\\n'\n"
         "  printf 'GPU[0]\\t\\t: Device ID: \\t\\t0x74a1\\n'\n"
         "  printf 'GPU[1]\\t\\t: Device Name: \\t\\tAMD Instinct MI300X\\n'\n"
         "  printf '======= End of ROCm SMI Log =======\\n';;\n"
         "--version) printf 'ROCM-SMI version: 2.3.1+8e1a6c5\\nROCM-SMI-LIB version: 7.3.0\\n';;\n"
         "*) exit 2;;\nesac\n");
    use_tools(m);
    probe(m);
    assert_true(s->available);
    assert_false(s->runnable);
    assert_string_equal(s->source, "rocm-smi");
    assert_string_equal(s->version, "2.3.1");
    assert_int_equal(s->n_gpus, 2);
    assert_string_equal(s->gpus[0].name, "AMD Instinct MI300X");
}

static void test_DET_5_hung_tools_are_killed(void **state)
{
    machine *m = *state;
    tool(m, "nvidia-smi", "#!/bin/sh\necho '0, GPU-1, NVIDIA H200, 1, 9.0, 1.2'\nsleep 60\n");
    tool(m, "rocm-smi", "#!/bin/sh\nsleep 60 & sleep 60\n");
    use_tools(m);
    m->options.tool_deadline_ms = 150;
    int fds = count_fds();
    double t = bnet_now_ms();
    probe(m);
    t = bnet_now_ms() - t;
    print_message("probing took %.0f ms\n%s", t, log_text);
    assert_true(t < 5000);
    assert_false(bnet_gpu_available_runtime(&D));
    assert_int_equal(count_fds(), fds);
    assert_non_null(strstr(log_text, "1:nvidia-smi did not answer before the deadline"));
    assert_non_null(strstr(log_text, "1:rocm-smi did not answer before the deadline"));
}

static void test_opencl_probe(void **state)
{
    machine *m = *state;
    const bnet_device_status *s = &D.kind[BNET_DEV_OPENCL];
    S.libraries = "libOpenCL.so.1";
    S.n_cl = 3;
    S.cl_type = 1 << 2;
    probe(m);
    assert_true(s->available && s->runnable);
    assert_int_equal(s->n_gpus, 3);
    assert_string_equal(s->version, "3.0");
    assert_string_equal(s->gpus[2].name, "Arc A770");
    assert_int_equal(s->gpus[2].device_id, 2);
    assert_int_equal(s->gpus[2].multiprocessors, 512);
    assert_int_equal(s->gpus[2].max_threads_per_block, 1024);
    assert_int_equal(s->gpus[2].max_shared_memory_per_block, 65536);
    assert_int_equal(s->gpus[2].total_memory, 16000000000);
    assert_true(s->gpus[2].fp16);
    assert_true(bnet_gpu_available_runtime(&D) && D.wgpu);
    S.cl_type = 1 << 1; /* a CPU driver is present, but no GPU */
    probe(m);
    assert_true(s->available && s->gpus[0].software);
    assert_false(bnet_gpu_available_runtime(&D) || D.wgpu);
    S.n_cl = 0;
    probe(m);
    assert_false(s->available);
    assert_non_null(strstr(s->reason, "no device"));
    S.cl_result = -1001;
    probe(m);
    assert_non_null(strstr(s->reason, "0 platform(s)"));
    S.cl_result = -6;
    probe(m);
    assert_non_null(strstr(s->reason, "error -6"));
    S.n_cl = 99; /* more than we list */
    S.cl_result = 0;
    probe(m);
    assert_int_equal(s->n_gpus, BNET_GPUS_MAX);
}

static void test_vulkan_probe(void **state)
{
    machine *m = *state;
    const bnet_device_status *s = &D.kind[BNET_DEV_VULKAN];
    S.libraries = "libvulkan.so.1";
    S.n_vk = 1;
    S.vk_type = 2;
    probe(m);
    assert_true(s->available && s->runnable);
    assert_string_equal(s->version, "1.3.277");
    assert_string_equal(s->gpus[0].name, "NVIDIA RTX A4000");
    assert_int_equal(s->gpus[0].total_memory, 17000000000); /* the heap of the device alone */
    assert_int_equal(s->gpus[0].max_shared_memory_per_block, 49152);
    assert_int_equal(s->gpus[0].max_threads_per_block, 1536);
    assert_false(s->gpus[0].software);
    S.vk_type = 4;
    probe(m);
    assert_true(s->gpus[0].software);
    S.n_vk = 0;
    probe(m);
    assert_false(s->available);
    S.vk_create = -9;
    probe(m);
    assert_non_null(strstr(s->reason, "no driver is installed"));
    S.vk_create = 0;
    S.missing = "vkEnumeratePhysicalDevices";
    probe(m);
    assert_non_null(strstr(s->reason, "lacks functions"));
    S.missing = "vkCreateInstance";
    probe(m);
    assert_false(s->available);
}

static void test_oneapi_probe(void **state)
{
    machine *m = *state;
    const bnet_device_status *s = &D.kind[BNET_DEV_ONEAPI];
    S.libraries = "libze_loader.so.1";
    S.ze_type = 1;
    probe(m);
    assert_true(s->available && s->runnable);
    assert_int_equal(s->n_gpus, 2);
    assert_string_equal(s->gpus[1].name, "Intel(R) Data Center GPU Max 1550");
    assert_int_equal(s->gpus[1].device_id, 1);
    assert_int_equal(s->gpus[1].multiprocessors, 32);
    assert_int_equal(s->gpus[1].max_threads_per_block, 1024);
    assert_int_equal(s->gpus[1].max_shared_memory_per_block, 131072);
    assert_int_equal(s->gpus[1].total_memory, (uint64_t)64 << 30);
    S.ze_type = 5; /* an NPU is no GPU */
    probe(m);
    assert_false(s->available);
    assert_non_null(strstr(s->reason, "no GPU"));
    S.ze_init = 0x78000001;
    probe(m);
    assert_non_null(strstr(s->reason, "0x78000001"));
}

static void test_quick_leaves_out_what_brings_compilers_along(void **state)
{
    machine *m = *state;
    S.libraries = ALL_LIBRARIES;
    S.n_cuda = S.n_hip = S.n_cl = S.n_vk = S.ze_type = 1;
    S.vk_type = 2;
    m->options.quick = true;
    m->world.compiled[BNET_DEV_VULKAN] = true;
    probe(m);
    assert_true(D.kind[BNET_DEV_CUDA].available && D.kind[BNET_DEV_HIP].available);
    assert_true(D.kind[BNET_DEV_VULKAN].available);
    assert_false(D.kind[BNET_DEV_OPENCL].available || D.kind[BNET_DEV_ONEAPI].available);
    assert_non_null(strstr(D.kind[BNET_DEV_OPENCL].reason, "not asked"));
}

static void test_DET_6_webgpu_flag(void **state)
{
    static const struct {
        const char *fake;
        bool wgpu;
    } rows[] = {{"cuda", true}, {"metal", true}, {"rocm", true}, {"none", false}, {"", false}};
    machine *m = *state;
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        m->options.fake = rows[i].fake;
        probe(m);
        assert_int_equal(D.wgpu, rows[i].wgpu);
    }
}

/* ---- fakes ---- */

#define BIT(k) (1u << BNET_DEV_##k)

static void test_DET_8_fake_values(void **state)
{
    static const struct {
        const char *fake;
        unsigned kinds;
    } rows[] = {
        {"cuda", BIT(CUDA)},
        {"gpu", BIT(CUDA)},
        {"metal", BIT(METAL)},
        {"rocm", BIT(HIP)},
        {"hip", BIT(HIP)},
        {"oneapi", BIT(ONEAPI)},
        {"opencl", BIT(OPENCL)},
        {"ocl", BIT(OPENCL)},
        {"vulkan", BIT(VULKAN)},
        {"npu", BIT(NPU)},
        {"none", 0},
        {"NONE", 0},
        {"", 0},
        {" ", 0},
        {",", 0},
        {"cuda,rocm", BIT(CUDA) | BIT(HIP)},
        {"rocm,cuda", BIT(CUDA) | BIT(HIP)},
        {"CUDA", BIT(CUDA)},
        {"Gpu", BIT(CUDA)},
        {"CuDa, RoCm ,METAL", BIT(CUDA) | BIT(HIP) | BIT(METAL)},
        {"cuda,cuda,gpu", BIT(CUDA)},
        {"cuda,", BIT(CUDA)},
    };
    machine *m = *state;
    S.libraries = ALL_LIBRARIES; /* real devices are there, and hidden */
    S.n_cuda = S.n_hip = S.n_cl = S.n_vk = 1;
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        m->options.fake = rows[i].fake;
        probe(m);
        print_message("BITNET_GPU_FAKE=\"%s\"\n", rows[i].fake);
        for (int k = 0; k < BNET_DEV_CPU; k++) {
            bool want = rows[i].kinds >> k & 1;
            assert_int_equal(D.kind[k].available, want);
            assert_int_equal(D.kind[k].fake, want);
            assert_false(D.kind[k].runnable);
            assert_string_equal(D.kind[k].source, want ? "fake" : "");
            assert_int_equal(D.kind[k].n_gpus, want);
            if (want)
                assert_non_null(strstr(D.kind[k].gpus[0].name, "fake"));
        }
        assert_int_equal(bnet_gpu_available_runtime(&D), rows[i].kinds != 0);
        assert_true(D.kind[BNET_DEV_CPU].available && !D.kind[BNET_DEV_CPU].fake);
    }
    assert_int_equal(S.n_opened, 0);
}

static void test_DET_8_fake_values_nobody_knows(void **state)
{
    static const char *const rows[] = {"nvidia", "cuda;rocm", "cuda,foo",  "cpu",
                                       "auto",   "1",         "none,cuda", "cuda,none",
                                       "cudax",  "cud",       "\x1b[2J",   "cuda rocm"};
    machine *m = *state;
    for (size_t i = 0; i < BNET_COUNT(rows); i++)
        for (int strict = 0; strict < 2; strict++) {
            bitnet_error err = {0};
            m->options.fake = rows[i];
            m->options.strict = strict;
            assert_int_equal(bnet_probe_world(&m->options, &m->world, &D, &err), BITNET_ARGUMENT);
            print_message("%s\n", err.message);
            assert_non_null(strstr(err.message, "BITNET_GPU_FAKE"));
            assert_null(strchr(err.message, 0x1b));
        }
    bitnet_error err = {0};
    m->options.fake = "nvidia";
    bnet_probe_world(&m->options, &m->world, &D, &err);
    assert_non_null(strstr(err.message, "cuda (or gpu), rocm (or hip)"));
    assert_int_equal(bnet_probe_world(&m->options, &m->world, &D, NULL), BITNET_ARGUMENT);
}

/* fake x strict x no-fake x compiled x really there: what is available, who says so, what fails. */
static void test_D_13_D_14_truth_table(void **state)
{
    static const char *const fakes[] = {NULL, "", "none", "cuda"};
    machine *m = *state;
    int n = 0;
    for (unsigned bits = 0; bits < 64; bits++) {
        const char *fake = fakes[bits & 3];
        bool strict = bits & 4, no_fake = bits & 8, compiled = bits & 16, real = bits & 32;
        bool named = fake && strcmp(fake, "cuda") == 0;
        bitnet_error err = {0};
        S = (stand_in){.libraries = real ? "libcuda.so.1" : NULL, .n_cuda = 1};
        S.cuda[0] = h200();
        m->options.fake = fake;
        m->options.strict = strict;
        m->options.no_fake = no_fake;
        m->world.compiled[BNET_DEV_CUDA] = compiled;
        log_text[0] = '\0';
        bitnet_status st = bnet_probe_world(&m->options, &m->world, &D, &err);
        n++;
        if (named && no_fake) { /* fatal, with or without strict */
            assert_int_equal(st, BITNET_NOT_AVAILABLE);
            assert_non_null(strstr(err.message, "BITNET_STRICT_NO_FAKE_GPU"));
            continue;
        }
        bool honoured = fake && !strict;
        bool available = honoured ? named : real;
        assert_int_equal(st, BITNET_OK);
        assert_int_equal(D.fake_ignored, fake && strict);
        assert_int_equal(cuda()->available, available);
        assert_int_equal(cuda()->fake, honoured && named);
        assert_int_equal(cuda()->runnable, !honoured && real);
        assert_int_equal(cuda()->compiled, compiled);
        assert_int_equal(bnet_gpu_compiled(&D), compiled);
        assert_int_equal(bnet_gpu_available_runtime(&D), available);
        assert_int_equal(bnet_supports_device(&D, BNET_DEV_CUDA), compiled && available);
        if (fake && strict)
            assert_non_null(strstr(log_text, "1:strict mode ignores BITNET_GPU_FAKE"));
    }
    assert_int_equal(n, 64);
}

static void test_DET_9_compiled_and_available_are_two_facts(void **state)
{
    machine *m = *state;
    for (int bits = 0; bits < 4; bits++) {
        m->world.compiled[BNET_DEV_CUDA] = bits & 1;
        m->options.fake = bits & 2 ? "gpu" : "none";
        probe(m);
        assert_int_equal(bnet_gpu_compiled(&D), bits & 1);
        assert_int_equal(bnet_gpu_available_runtime(&D), bits >> 1);
    }
    bool compiled[BNET_DEV_COUNT];
    bnet_compiled(compiled);
    assert_true(compiled[BNET_DEV_CPU]); /* every build has the CPU */
}

static void test_DET_10_supports_device(void **state)
{
    machine *m = *state;
    for (int bits = 0; bits < 4; bits++) {
        m->world.compiled[BNET_DEV_CUDA] = bits & 1;
        m->options.fake = bits & 2 ? "cuda,metal" : "none";
        probe(m);
        assert_true(bnet_supports_device(&D, BNET_DEV_CPU));
        assert_int_equal(bnet_supports_device(&D, BNET_DEV_CUDA), bits == 3);
        assert_false(bnet_supports_device(&D, BNET_DEV_METAL)); /* no build has it */
    }
}

static void test_gpu_info_mocked_scenarios(void **state)
{
    static const struct {
        const char *fake;
        bool cuda, metal, rocm;
    } rows[] = {
        {"cuda", true, false, false},      {"metal", false, true, false},
        {"rocm", false, false, true},      {"cuda,rocm", true, false, true},
        {"cuda,metal", true, true, false}, {"", false, false, false},
    };
    machine *m = *state;
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        m->options.fake = rows[i].fake;
        probe(m);
        assert_int_equal(D.kind[BNET_DEV_CUDA].available, rows[i].cuda);
        assert_int_equal(D.kind[BNET_DEV_METAL].available, rows[i].metal);
        assert_int_equal(D.kind[BNET_DEV_HIP].available, rows[i].rocm);
        assert_int_equal(D.wgpu, rows[i].cuda || rows[i].metal || rows[i].rocm);
    }
}

/* ---- this machine ---- */

static void test_real_machine(void **state)
{
    (void)state;
    bnet_probe_options o;
    bitnet_error err = {0};
    bnet_probe_options_init(&o);
    o.fake = "none"; /* drivers of whoever runs the test are left alone */
    assert_int_equal(bnet_probe(&o, &D, &err), BITNET_OK);
    assert_true(D.cpu.brand[0]);
    assert_true(D.cpu.n_usable >= 1 && D.cpu.n_physical >= 1);
    assert_true(D.cpu.n_logical >= D.cpu.n_physical);
    assert_true(D.cpu.memory_total > D.cpu.process_rss);
    assert_true(D.cpu.process_rss > 0);
    assert_null(bnet_dl.open(NULL, "libbitnet-is-not-a-driver.so.9"));
    void *self = bnet_dl.open(NULL, NULL);
    assert_non_null(self);
    assert_non_null(bnet_dl.sym(NULL, self, "malloc"));
    assert_null(bnet_dl.sym(NULL, self, "bitnet_no_such_function"));
    bnet_dl.close(NULL, self);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_DET_1_no_gpu_is_said_cleanly),
        T(test_DET_2_gpu_info_summary),
        T(test_DET_3_DET_11_cuda_device_info_query),
        T(test_P_3_topology),
        T(test_cuda_availability),
        T(test_DET_12_listing_text),
        T(test_DET_18_cuda_visible_devices),
        T(test_DET_18_visible_list),
        T(test_DET_3_nvidia_smi_is_the_fallback),
        T(test_DET_3_driver_wins_over_nvidia_smi),
        T(test_DET_3_toolkit_version),
        T(test_DET_4_metal_only_by_fake),
        T(test_DET_5_rocm_by_its_runtime),
        T(test_DET_5_rocm_smi_is_the_fallback),
        T(test_DET_5_hung_tools_are_killed),
        T(test_opencl_probe),
        T(test_vulkan_probe),
        T(test_oneapi_probe),
        T(test_quick_leaves_out_what_brings_compilers_along),
        T(test_DET_6_webgpu_flag),
        T(test_DET_8_fake_values),
        T(test_DET_8_fake_values_nobody_knows),
        T(test_D_13_D_14_truth_table),
        T(test_DET_9_compiled_and_available_are_two_facts),
        T(test_DET_10_supports_device),
        T(test_gpu_info_mocked_scenarios),
        T(test_real_machine),
    };
    return cmocka_run_group_tests_name("device/probe", tests, NULL, NULL);
}
