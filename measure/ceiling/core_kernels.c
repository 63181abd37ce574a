/* What one core can issue: independent multiply-adds in registers, and a dependent chain of additions.
 *
 * Usage: core_kernels issue SECONDS CPU,CPU,...        prints "THREAD CHAIN_S KERNEL_S" for each pair of bursts
 *
 * One thread is pinned to each processor named; all begin together. The first line printed says how much work a burst
 * has: "chain ADDITIONS kernel INSTRUCTIONS". One of the macros KERNEL_... chooses the instruction.
 * The chain is one register added to another again and again: each addition waits for the one before, and takes one
 * cycle on every core of the table, so that additions a second are the core's clock. An addition of a constant would
 * not do: renaming can fold it. The instructions stand between the additions, few enough to finish in their shadow: a
 * core that runs additions alone goes to a higher clock within microseconds. Operands are normal numbers, as subnormal
 * ones are slow and zeros need less power.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MOST_THREADS 1024
#define MOST_BURSTS 4096
#define CHAIN_S 100e-6
#define KERNEL_S 300e-6
#define WARM_S 0.02

#define MAYBE __attribute__((unused))
#define TEXT(x) #x
#define STRING(x) TEXT(x)

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Of each kind: SETUP fills the registers from %2 and %3, EACH("...") repeats its text for every accumulator, with the
 * instruction before it. ADDITIONS: between two instructions of the mixed loop, so many that the chain is the slower one
 * even where a core issues one instruction in two clocks. */
#define FIRST_6 "0,1,2,3,4,5"
#define FIRST_12 FIRST_6 ",6,7,8,9,10,11"
#define FIRST_24 FIRST_12 ",12,13,14,15,16,17,18,19,20,21,22,23"
#define REPEATS 8
#define ALL(list, instruction, after) " .irp r," list "\n " instruction "\n" after " .endr\n"
#define SETUP_X86(list, one, other, broadcast, kind)                              \
    " .irp r," list "\n " broadcast " (%2), %%" kind "\\r\n .endr\n"              \
    " " broadcast " (%3), %%" kind one "\n " broadcast " (%3), %%" kind other "\n"

static const float MAYBE floats[] = {1, 1, 1, 1}, MAYBE small_floats[] = {1e-3f, 1e-3f, 1e-3f, 1e-3f};
static const uint16_t MAYBE halves[] = {0x3c00, 0x3c00, 0x3c00, 0x3c00, 0x3c00, 0x3c00, 0x3c00, 0x3c00};
static const uint16_t MAYBE small_halves[] = {0x1400, 0x1400, 0x1400, 0x1400, 0x1400, 0x1400, 0x1400, 0x1400};
static const uint16_t MAYBE small_brains[] = {0x3a83, 0x3a83, 0x3a83, 0x3a83, 0x3a83, 0x3a83, 0x3a83, 0x3a83};
static const uint8_t MAYBE bytes[] = {3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3};
#define VALUES floats
#define OTHERS small_floats
#define ADDITIONS 4
#define TEARDOWN ""

#if defined(__x86_64__)
#define ADD " add %4, %1\n"
#define AGAIN " dec %0\n jnz 2b\n"
#define X12 "xmm0","xmm1","xmm2","xmm3","xmm4","xmm5","xmm6","xmm7","xmm8","xmm9","xmm10","xmm11","xmm14","xmm15"
#define X24 X12, "xmm12","xmm13","xmm16","xmm17","xmm18","xmm19","xmm20","xmm21","xmm22","xmm23","xmm30","xmm31"
#define YMM_SETUP SETUP_X86(FIRST_12, "14", "15", "vbroadcastss", "ymm")
#define ZMM_SETUP SETUP_X86(FIRST_24, "30", "31", "vbroadcastss", "zmm")
#define YMM_EACH(instruction, after) ALL(FIRST_12, instruction " %%ymm14, %%ymm15, %%ymm\\r", after)
#define ZMM_EACH(instruction, after) ALL(FIRST_24, instruction " %%zmm30, %%zmm31, %%zmm\\r", after)
#endif

#if defined(KERNEL_SSE2)
#define REGISTERS 12
#define CLOBBERED X12
#undef OTHERS
#define OTHERS floats
#define SETUP " .irp r," FIRST_12 ",14,15\n movups (%2), %%xmm\\r\n .endr\n"
#define EACH(after) ALL(FIRST_6, "mulps %%xmm14, %%xmm\\r", after) ALL("6,7,8,9,10,11", "addps %%xmm15, %%xmm\\r", after)
#elif defined(KERNEL_AVX)
#define REGISTERS 12
#define CLOBBERED X12
#undef OTHERS
#define OTHERS floats
#define SETUP YMM_SETUP
#define EACH(after)                                           \
    ALL(FIRST_6, "vmulps %%ymm14, %%ymm\\r, %%ymm\\r", after) \
    ALL("6,7,8,9,10,11", "vaddps %%ymm15, %%ymm\\r, %%ymm\\r", after)
#elif defined(KERNEL_FMA) || defined(KERNEL_AVX_VNNI)
#define REGISTERS 12
#define CLOBBERED X12
#define SETUP YMM_SETUP
#if defined(KERNEL_FMA)
#define EACH(after) YMM_EACH("vfmadd231ps", after)
#else
#undef OTHERS
#define OTHERS bytes
#define EACH(after) YMM_EACH("%{vex%} vpdpbusd", after)
#endif
#elif defined(KERNEL_AVX512F) || defined(KERNEL_AVX512_BF16) || defined(KERNEL_AVX512_FP16) || defined(KERNEL_AVX512_VNNI)
#define REGISTERS 24
#define CLOBBERED X24
#define SETUP ZMM_SETUP
#if defined(KERNEL_AVX512F)
#define EACH(after) ZMM_EACH("vfmadd231ps", after)
#elif defined(KERNEL_AVX512_BF16)
#undef OTHERS
#define OTHERS small_brains
#define EACH(after) ZMM_EACH("vdpbf16ps", after)
#elif defined(KERNEL_AVX512_FP16)
#undef VALUES
#undef OTHERS
#define VALUES halves
#define OTHERS small_halves
#define EACH(after) ZMM_EACH("vfmadd231ph", after)
#else
#undef OTHERS
#define OTHERS bytes
#define EACH(after) ZMM_EACH("vpdpbusd", after)
#endif
#elif defined(KERNEL_AMX_BF16) || defined(KERNEL_AMX_INT8)
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>
#define REGISTERS 6 /* a tile each; two more hold the factors */
#define CLOBBERED "memory"
#define ARCH_REQ_XCOMP_PERM 0x1023
#define XFEATURE_XTILEDATA 18
#define HAS_PREPARE
typedef struct {
    uint8_t palette, start, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} TileShape;
static const TileShape tiles __attribute__((aligned(64))) = {1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};
static uint16_t tile[512] __attribute__((aligned(64)));
static int prepare(void) {
    for (int i = 0; i < 512; i++) tile[i] = 0x3a83;
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) ? errno : 0;
}
#undef VALUES
#undef OTHERS
#undef ADDITIONS
#undef TEARDOWN
#define VALUES &tiles
#define OTHERS tile
#define ADDITIONS 40
#define TEARDOWN " tilerelease\n"
#define SETUP " ldtilecfg (%2)\n .irp r," FIRST_6 "\n tilezero %%tmm\\r\n .endr\n mov $64, %%eax\n" \
    " tileloadd (%3,%%rax,1), %%tmm6\n tileloadd (%3,%%rax,1), %%tmm7\n"
#undef CLOBBERED
#define CLOBBERED "rax"
#if defined(KERNEL_AMX_BF16)
#define EACH(after) ALL(FIRST_6, "tdpbf16ps %%tmm7, %%tmm6, %%tmm\\r", after)
#else
#define EACH(after) ALL(FIRST_6, "tdpbssd %%tmm7, %%tmm6, %%tmm\\r", after)
#endif
#elif defined(__aarch64__)
#define ADD " add %1, %1, %4\n"
#define AGAIN " subs %0, %0, #1\n b.ne 2b\n"
#define REGISTERS 24
#define CLOBBERED "v0","v1","v2","v3","v4","v5","v6","v7","v8","v9","v10","v11","v12","v13","v14","v15","v16","v17", \
    "v18","v19","v20","v21","v22","v23","v30","v31"
#define SETUP " .irp r," FIRST_24 "\n ldr q\\r, [%2]\n .endr\n ldr q30, [%3]\n ldr q31, [%3]\n"
#if defined(KERNEL_ASIMDHP)
#undef VALUES
#undef OTHERS
#define VALUES halves
#define OTHERS small_halves
#define EACH(after) ALL(FIRST_24, "fmla v\\r\\().8h, v30.8h, v31.8h", after)
#elif defined(KERNEL_ASIMDDP) || defined(KERNEL_I8MM)
#undef OTHERS
#define OTHERS bytes
#if defined(KERNEL_ASIMDDP)
#define EACH(after) ALL(FIRST_24, "sdot v\\r\\().4s, v30.16b, v31.16b", after)
#else
#define EACH(after) ALL(FIRST_24, "smmla v\\r\\().4s, v30.16b, v31.16b", after)
#endif
#elif defined(KERNEL_BF16)
#undef OTHERS
#define OTHERS small_brains
#define EACH(after) ALL(FIRST_24, "bfmmla v\\r\\().4s, v30.8h, v31.8h", after)
#elif defined(KERNEL_SVE)
#undef SETUP
#define SETUP " ptrue p0.s\n .irp r," FIRST_24 "\n ld1rw {z\\r\\().s}, p0/z, [%2]\n .endr\n" \
    " ld1rw {z30.s}, p0/z, [%3]\n ld1rw {z31.s}, p0/z, [%3]\n"
#define EACH(after) ALL(FIRST_24, "fmla z\\r\\().s, p0/m, z30.s, z31.s", after)
#elif defined(KERNEL_ASIMD)
#define EACH(after) ALL(FIRST_24, "fmla v\\r\\().4s, v30.4s, v31.4s", after)
#else
#error "expected one of the macros KERNEL_..."
#endif
#else
#error "expected one of the macros KERNEL_... of x86-64 or AArch64"
#endif

#define LOOP(body)                                                                                            \
    long value = 1;                                                                                           \
    __asm__ volatile(SETUP "2:\n .rept " STRING(REPEATS) "\n" body " .endr\n" AGAIN TEARDOWN                  \
                     : "+r"(rounds), "+r"(value) : "r"(VALUES), "r"(OTHERS), "r"(3L) : "cc", "memory", CLOBBERED)

/* Instructions alone: REPEATS * REGISTERS of them a round. */
static void kernel(long rounds) {
    LOOP(EACH(""));
}

/* The chain with the same instructions beside it, so that the core has the clock it has under them. */
static void chain(long rounds) {
    LOOP(EACH(" .rept " STRING(ADDITIONS) "\n" ADD " .endr\n"));
}
#define CHAIN_ADDITIONS (REPEATS * REGISTERS * ADDITIONS)

#ifndef HAS_PREPARE
static int prepare(void) { return 0; }
#endif

static pthread_barrier_t together;
static double seconds;
static long chain_rounds, kernel_rounds;

typedef struct {
    int cpu, bursts;
    double first_s[MOST_BURSTS], second_s[MOST_BURSTS];
} Worker;

static double timed(void (*work)(long), long rounds) {
    double begun_s = now_s();
    work(rounds);
    return now_s() - begun_s;
}

/* Rounds of a kernel that take about `goal_s`, by the fastest of some tries. */
static long rounds_for(void (*work)(long), double goal_s) {
    double least_s = 1e9;
    for (int i = 0; i < 20; i++) {
        double taken_s = timed(work, 16);
        least_s = taken_s < least_s ? taken_s : least_s;
    }
    long rounds = (long)(16 * goal_s / least_s);
    return rounds < 1 ? 1 : rounds;
}

static void *issue(void *argument) {
    Worker *worker = argument;
    double until_s;
    pthread_barrier_wait(&together);
    until_s = now_s() + WARM_S;
    while (now_s() < until_s) kernel(kernel_rounds);
    until_s = now_s() + seconds;
    while (now_s() < until_s && worker->bursts < MOST_BURSTS) {
        worker->second_s[worker->bursts] = timed(kernel, kernel_rounds);
        worker->first_s[worker->bursts++] = timed(chain, chain_rounds);
    }
    return NULL;
}

static int pinned(pthread_t *thread, void *(*work)(void *), Worker *worker) {
    cpu_set_t set;
    pthread_attr_t attributes;
    CPU_ZERO(&set);
    CPU_SET((size_t)worker->cpu, &set);
    pthread_attr_init(&attributes);
    pthread_attr_setaffinity_np(&attributes, sizeof set, &set);
    return pthread_create(thread, &attributes, work, worker);
}

int main(int count, char **arguments) {
    static Worker *workers[MOST_THREADS];
    static pthread_t threads[MOST_THREADS];
    int n = 0, fault;
    if (count != 4) return fputs("expected issue SECONDS CPUS\n", stderr), 2;
    seconds = atof(arguments[2]);
    if ((fault = prepare())) return fprintf(stderr, "the system refuses these registers: %s\n", strerror(fault)), 3;
    double warm_s = now_s() + WARM_S;
    while (now_s() < warm_s) kernel(16);
    chain_rounds = rounds_for(chain, CHAIN_S);
    kernel_rounds = rounds_for(kernel, KERNEL_S);
    printf("chain %ld kernel %ld\n", chain_rounds * CHAIN_ADDITIONS, kernel_rounds * REPEATS * REGISTERS);
    for (char *cpu = strtok(arguments[3], ","); cpu && n < MOST_THREADS; cpu = strtok(NULL, ",")) {
        workers[n] = calloc(1, sizeof(Worker));
        if (workers[n] == NULL) return fputs("no memory\n", stderr), 3;
        workers[n++]->cpu = atoi(cpu);
    }
    pthread_barrier_init(&together, NULL, (unsigned)n);
    for (int i = 0; i < n; i++)
        if ((fault = pinned(&threads[i], issue, workers[i])))
            return fprintf(stderr, "no thread on processor %d: %s\n", workers[i]->cpu, strerror(fault)), 3;
    for (int i = 0; i < n; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < n; i++)
        for (int burst = 0; burst < workers[i]->bursts; burst++)
            printf("%d %.9f %.9f\n", i, workers[i]->first_s[burst], workers[i]->second_s[burst]);
    return 0;
}
