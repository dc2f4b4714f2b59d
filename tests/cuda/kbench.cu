/* kbench.cu - checks every CUDA kernel against plain C++ on random data and times it.
 *     kbench [section ...]      all sections by default; exit status 1 if a check failed
 *     kbench -section ...       all but these
 * Sections are in bench_*.cu. The last lines are one table. */
#include "kbench.cuh"

#include <cstdarg>

cudaStream_t stream;
int n_sm;
uint32_t shared_max;
section *section::first;
static std::string table;
static int failures;

void row(const char *format, ...)
{
    char line[2000];
    va_list ap;
    va_start(ap, format);
    vsnprintf(line, sizeof line, format, ap);
    va_end(ap);
    table += std::string(line) + "\n";
}

void verdict(const std::string &what, bool ok, const std::string &detail)
{
    failures += !ok;
    if (!ok)
        table += "FAILED " + what + " " + detail + "\n";
    printf("%-6s %s %s\n", ok ? "ok" : "FAILED", what.c_str(), detail.c_str());
}

double distance(const std::vector<float> &a, const std::vector<double> &b)
{
    double d = 0, n = 0;
    for (size_t i = 0; i < b.size(); i++) {
        d += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        n += b[i] * b[i];
        if (!std::isfinite(a[i]))
            return INFINITY;
    }
    return sqrt(d / (n > 0 ? n : 1));
}

int main(int argc, char **argv)
{
    cudaDeviceProp p;
    if (cudaGetDeviceProperties(&p, 0) != cudaSuccess) {
        printf("no CUDA device\n");
        return 2;
    }
    n_sm = p.multiProcessorCount;
    shared_max = (uint32_t)p.sharedMemPerBlockOptin - 1024;
    if (cudaStreamCreate(&stream) != cudaSuccess)
        return 2;
    printf("%s, %d multiprocessors, L2 %d MB\n", p.name, n_sm, p.l2CacheSize >> 20);
    std::vector<section *> all;
    for (section *s = section::first; s; s = s->next)
        all.insert(all.begin(), s);
    for (section *s : all) {
        bool wanted = argc == 1 || argv[1][0] == '-';
        for (int i = 1; i < argc; i++) {
            wanted = wanted || !strcmp(argv[i], s->name);
            wanted = wanted && !(argv[i][0] == '-' && !strcmp(argv[i] + 1, s->name));
        }
        if (!wanted)
            continue;
        try {
            s->run();
        } catch (const std::exception &e) {
            verdict(s->name, false, e.what());
            cudaGetLastError();
            if (cudaDeviceSynchronize() != cudaSuccess) {
                printf("the device is lost\n");
                break;
            }
        }
        fflush(stdout);
    }
    printf("\n%s%d failures\n", table.c_str(), failures);
    return failures != 0;
}
