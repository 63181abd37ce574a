/* The plan, the clock, the page that processes share, and the list of calls that are not there.

   The clock. A device of known truth must not depend on how busy this machine is. So a process has a clock of its own,
   `host`: each call of CUDA costs it call_ns, and waiting for the device moves it to the end of the work. What streams
   and events see is this clock. Real time passes, too, while somebody waits (sleep 1), so that a program that looks at
   its own clock sees at least as much time as the device says. */
#define _GNU_SOURCE
#include "standin.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MAGIC 0x73746e64696e3031ull
#define STATE_BYTES 65536

/* ---- plan ---- */
static void die(const char *what, const char *which) {
    fprintf(stderr, "stand-in: %s: %s\n", what, which);
    abort();
}

static struct { const char *name; size_t offset; double otherwise; } NUMBERS[] = {
#define NUMBER(name, otherwise, meaning) {#name, offsetof(Plan, name), otherwise},
#include "plan.def"
#undef NUMBER
};
#define N_NUMBERS (sizeof NUMBERS / sizeof *NUMBERS)

static char device_name[256] = "Stand-in of NVIDIA H100 80GB HBM3";

static void read_line(Plan *plan, char *line) {
    char *value = strchr(line, ' ');
    if (!value) return;
    *value++ = 0;
    value[strcspn(value, "\n")] = 0;
    if (!strcmp(line, "name")) {
        snprintf(device_name, sizeof device_name, "Stand-in of %s", value);
        return;
    }
    for (size_t i = 0; i < N_NUMBERS; i++)
        if (!strcmp(NUMBERS[i].name, line)) {
            *(double *)((char *)plan + NUMBERS[i].offset) = atof(value);
            return;
        }
    die("no such quantity in the plan", line);
}

static Plan plan;
static pthread_once_t plan_once = PTHREAD_ONCE_INIT;
static void read_plan(void) {
    for (size_t i = 0; i < N_NUMBERS; i++) *(double *)((char *)&plan + NUMBERS[i].offset) = NUMBERS[i].otherwise;
    const char *path = getenv("STANDIN_PLAN");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (path && !file) die("cannot read the plan", path);
    char line[256];
    while (file && fgets(line, sizeof line, file)) read_line(&plan, line);
    if (file) fclose(file);
}
const Plan *standin_plan(void) {
    pthread_once(&plan_once, read_plan);
    return &plan;
}
const char *standin_name(void) {
    standin_plan();
    return device_name;
}

/* ---- the page ---- */
static State *state;
static pthread_once_t state_once = PTHREAD_ONCE_INIT;
static void map_state(void) {
    const char *path = getenv("STANDIN_STATE");
    if (!path) die("no state file", "STANDIN_STATE is not set");
    int file = open(path, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, STATE_BYTES)) die("cannot write the state", path);
    state = mmap(NULL, STATE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (state == MAP_FAILED) die("cannot map the state", path);
    uint64_t blank = 0;
    if (__atomic_compare_exchange_n(&state->magic, &blank, MAGIC, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        state->born = standin_now();
}
State *standin_state(void) {
    pthread_once(&state_once, map_state);
    return state;
}

static int is_gone(int pid) { return pid && kill(pid, 0) && errno == ESRCH; }

static Process *mine;
static int mine_pid, mine_context;
static void leave(void) {
    if (mine && mine_pid == getpid()) mine->pid = 0;
}
/* This process's line on the page: a context is made by the first call that needs one. */
Process *standin_process(void) {
    if (mine && mine_pid == getpid()) return mine;
    State *page = standin_state();
    int pid = getpid();
    for (int i = 0; i < MAX_PROCESSES; i++) {
        int owner = page->process[i].pid;
        if (owner && !is_gone(owner)) continue;
        if (!__sync_bool_compare_and_swap(&page->process[i].pid, owner, pid)) continue;
        mine = &page->process[i];
        memset(mine->used_bytes, 0, sizeof mine->used_bytes);
        mine_pid = pid;
        mine_context = (int)__sync_add_and_fetch(&page->contexts, 1);
        atexit(leave);
        return mine;
    }
    die("too many processes", "MAX_PROCESSES");
    return NULL;
}
int standin_context(void) {
    standin_process();
    return mine_context;
}
uint64_t standin_used(int device) {
    State *page = standin_state();
    uint64_t bytes = (uint64_t)standin_plan()->other_process_mib << 20;
    if (page->later) bytes += (uint64_t)standin_plan()->later_process_mib << 20;
    for (int i = 0; i < MAX_PROCESSES; i++)
        if (page->process[i].pid && !is_gone(page->process[i].pid)) bytes += page->process[i].used_bytes[device];
    return bytes;
}

double standin_mhz(void) { return standin_state()->later ? standin_plan()->later_mhz : standin_plan()->sm_mhz; }

/* ---- clocks ---- */
double standin_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}
static double host;
double standin_host(void) {
    if (!host) host = standin_now();
    return host;
}
void standin_call(void) {
    standin_host();
    host += standin_plan()->call_ns;
}
static double shown;
void standin_show_until(double end) {
    if (end > shown) shown = end;
}
void standin_wait(double end) {
    double left = end - standin_host(), until = standin_now() + left;
    if (until < shown) until = shown;
    if (until <= standin_now()) return;
    while (standin_plan()->sleep && standin_now() < until) {
        double rest = until - standin_now();
        if (rest > 1e10) rest = 1e10; /* work that never ends is waited for in pieces, for ever */
        struct timespec t = {(time_t)(rest / 1e9), (long)rest % 1000000000};
        if (rest > 0) nanosleep(&t, NULL);
    }
    if (host < end) host = end;
}

/* ---- calls that are not there ---- */
void standin_missing(const char *name) {
    const char *path = getenv("STANDIN_MISSING");
    FILE *file = path ? fopen(path, "a") : NULL;
    fprintf(file ? file : stderr, "%s\n", name);
    if (file) fclose(file);
}
