/* libnvidia-ml: devices as the plan describes them; power, energy and memory from the page that CUDA's processes write.
   Its header is no part of torch's wheels, so its functions are declared here as NVML's API reference gives them. */
#include "standin.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

typedef int Return;
typedef struct Device *Handle; /* 0x1000 + index; 0x2000: a MIG slice of device 0 */
enum { SUCCESS = 0, UNINITIALIZED = 1, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, NO_DRIVER = 9, LOST = 15 };
#define DEVICE 0x1000
#define SLICE 0x2000
#define IN_MEMORY_CLOCK 2
#define RESERVED_BYTES (600ull << 20)

static int users;
static Return answerable(void) {
    if (!standin_plan()->nvml) return NO_DRIVER;
    if (!users) return UNINITIALIZED;
    State *page = standin_state();
    double limit = standin_plan()->nvml_fails_after;
    if (limit && (double)page->power_readings >= limit) return (Return)standin_plan()->nvml_error;
    return page->lost ? LOST : SUCCESS;
}
#define ANSWERABLE()                \
    do {                            \
        Return no_ = answerable();  \
        if (no_) return no_;        \
    } while (0)

API Return nvmlInit_v2(void) {
    if (!standin_plan()->nvml) return NO_DRIVER;
    users++;
    return SUCCESS;
}
API Return nvmlInit(void) { return nvmlInit_v2(); }
API Return nvmlInitWithFlags(unsigned flags) { return nvmlInit_v2(); }
API Return nvmlShutdown(void) {
    if (users) users--;
    return SUCCESS;
}
API const char *nvmlErrorString(Return result) {
    switch (result) {
    case SUCCESS: return "Success";
    case UNINITIALIZED: return "Uninitialized";
    case NOT_SUPPORTED: return "Not Supported";
    case NOT_FOUND: return "Not Found";
    case INSUFFICIENT_SIZE: return "Insufficient Size";
    case NO_DRIVER: return "Driver Not Loaded";
    case LOST: return "GPU is lost";
    default: return "Unknown Error";
    }
}
API Return nvmlSystemGetDriverVersion(char *text, unsigned bytes) {
    ANSWERABLE();
    snprintf(text, bytes, "999.00 (stand-in)");
    return SUCCESS;
}
API Return nvmlSystemGetCudaDriverVersion_v2(int *version) {
    *version = (int)standin_plan()->driver_cuda;
    return SUCCESS;
}
API Return nvmlSystemGetCudaDriverVersion(int *version) { return nvmlSystemGetCudaDriverVersion_v2(version); }

/* ---- which device ---- */
API Return nvmlDeviceGetCount_v2(unsigned *count) {
    if (!users) return UNINITIALIZED;
    *count = (unsigned)standin_plan()->devices;
    return SUCCESS;
}
static size_t index_of(Handle device) { return (size_t)device == SLICE ? 0 : (size_t)device - DEVICE; }
API Return nvmlDeviceGetHandleByIndex_v2(unsigned index, Handle *device) {
    ANSWERABLE();
    *device = (Handle)(size_t)(DEVICE + index);
    return index < standin_plan()->devices ? SUCCESS : NOT_FOUND;
}
API Return nvmlDeviceGetHandleByPciBusId_v2(const char *bus, Handle *device) {
    ANSWERABLE();
    unsigned number = 0x1a;
    sscanf(bus, "%*x:%x", &number);
    *device = (Handle)(size_t)(DEVICE + number - 0x1a);
    return SUCCESS;
}
API Return nvmlDeviceGetHandleByUUID(const char *uuid, Handle *device) {
    ANSWERABLE();
    int slice = !strncmp(uuid, "MIG-", 4);
    *device = (Handle)(size_t)(slice ? SLICE : DEVICE);
    return slice && !standin_plan()->mig ? NOT_FOUND : SUCCESS;
}
API Return nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Handle slice, Handle *device) {
    *device = (Handle)(size_t)DEVICE;
    return SUCCESS;
}
API Return nvmlDeviceGetIndex(Handle device, unsigned *index) {
    *index = (unsigned)index_of(device);
    return SUCCESS;
}
API Return nvmlDeviceGetName(Handle device, char *text, unsigned bytes) {
    ANSWERABLE();
    snprintf(text, bytes, "%s", standin_name());
    return SUCCESS;
}
API Return nvmlDeviceGetUUID(Handle device, char *text, unsigned bytes) { /* the bytes of cudaDeviceProp.uuid */
    ANSWERABLE();
    snprintf(text, bytes, "%s-5354414e-442d-494e-2d44-4556494345%02x", (size_t)device == SLICE ? "MIG" : "GPU",
             (unsigned)index_of(device));
    return SUCCESS;
}
API Return nvmlDeviceGetVbiosVersion(Handle device, char *text, unsigned bytes) {
    ANSWERABLE();
    snprintf(text, bytes, "stand-in");
    return SUCCESS;
}

/* ---- one number a question ---- */
#define ANSWER(function, type, value)                       \
    API Return function(Handle device, type *into) {        \
        ANSWERABLE();                                       \
        *into = (type)(value);                              \
        return SUCCESS;                                     \
    }
typedef unsigned long long Long;
static double event_reasons(void) {
    return standin_state()->later ? standin_plan()->later_event_reasons : standin_plan()->event_reasons;
}
ANSWER(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, standin_plan()->pcie_generation)
ANSWER(nvmlDeviceGetMaxPcieLinkGeneration, unsigned, 5)
ANSWER(nvmlDeviceGetCurrPcieLinkWidth, unsigned, 16)
ANSWER(nvmlDeviceGetMaxPcieLinkWidth, unsigned, 16)
ANSWER(nvmlDeviceGetPersistenceMode, unsigned, 1)
ANSWER(nvmlDeviceGetEnforcedPowerLimit, unsigned, standin_plan()->power_limit_w * 1000)
ANSWER(nvmlDeviceGetPowerManagementLimit, unsigned, standin_plan()->power_limit_w * 1000)
ANSWER(nvmlDeviceGetPowerManagementDefaultLimit, unsigned, 700000)
ANSWER(nvmlDeviceGetCurrentClocksEventReasons, Long, event_reasons())
ANSWER(nvmlDeviceGetCurrentClocksThrottleReasons, Long, event_reasons())
ANSWER(nvmlDeviceGetComputeMode, unsigned, 0)
API Return nvmlDeviceGetMigMode(Handle device, unsigned *now, unsigned *pending) {
    ANSWERABLE();
    *now = *pending = (unsigned)standin_plan()->mig;
    return SUCCESS;
}
API Return nvmlDeviceGetEccMode(Handle device, unsigned *now, unsigned *pending) {
    ANSWERABLE();
    *now = *pending = 1;
    return SUCCESS;
}
API Return nvmlDeviceGetClockInfo(Handle device, int clock, unsigned *mhz) {
    ANSWERABLE();
    *mhz = clock == IN_MEMORY_CLOCK ? 2619 : (unsigned)standin_mhz();
    return SUCCESS;
}
API Return nvmlDeviceGetMaxClockInfo(Handle device, int clock, unsigned *mhz) {
    ANSWERABLE();
    *mhz = clock == IN_MEMORY_CLOCK ? 2619 : 1980;
    return SUCCESS;
}
API Return nvmlDeviceGetTemperature(Handle device, int sensor, unsigned *celsius) {
    ANSWERABLE();
    *celsius = (unsigned)standin_plan()->temperature_c;
    return SUCCESS;
}
API Return nvmlDeviceGetTemperatureV(Handle device, struct { unsigned version; int sensor, celsius; } *into) {
    ANSWERABLE();
    into->celsius = (int)standin_plan()->temperature_c;
    return SUCCESS;
}
API Return nvmlDeviceGetCudaComputeCapability(Handle device, int *major, int *minor) {
    ANSWERABLE();
    *major = (int)standin_plan()->compute_capability / 10;
    *minor = (int)standin_plan()->compute_capability % 10;
    return SUCCESS;
}

/* ---- power and energy: idle_w always, busy_w while work runs ---- */
static int is_busy(void) { return standin_state()->busy_until > standin_now(); }
API Return nvmlDeviceGetPowerUsage(Handle device, unsigned *milliwatt) {
    ANSWERABLE();
    __sync_add_and_fetch(&standin_state()->power_readings, 1);
    double watt = is_busy() ? standin_plan()->busy_w : standin_plan()->idle_w;
    *milliwatt = (unsigned)(1000 * watt * standin_plan()->power_scale);
    return SUCCESS;
}
typedef struct {
    unsigned id, scope;
    long long time, latency;
    int type;
    Return result;
    union { unsigned number; Long large; } value;
} Field;
API Return nvmlDeviceGetFieldValues(Handle device, int count, Field *fields) {
    ANSWERABLE();
    for (Field *field = fields; field < fields + count; field++) /* 186: NVML_FI_DEV_POWER_INSTANT */
        field->result = field->id == 186 ? nvmlDeviceGetPowerUsage(device, &field->value.number) : NOT_SUPPORTED;
    return SUCCESS;
}
API Return nvmlDeviceGetTotalEnergyConsumption(Handle device, Long *millijoule) {
    ANSWERABLE();
    const Plan *plan = standin_plan();
    if (!plan->energy_counter) return NOT_SUPPORTED;
    State *page = standin_state();
    double now = standin_now(), ahead = page->busy_until > now ? page->busy_until - now : 0;
    double busy_ns = (double)page->busy_ns > ahead ? (double)page->busy_ns - ahead : 0; /* what is still to come is not spent */
    double joule = ((now - page->born) * plan->idle_w + busy_ns * (plan->busy_w - plan->idle_w)) * 1e-9;
    *millijoule = (Long)(1e6 + joule * 1e3 * plan->energy_scale);
    return SUCCESS;
}
API Return nvmlDeviceGetUtilizationRates(Handle device, struct { unsigned gpu, memory; } *percent) {
    ANSWERABLE();
    percent->gpu = percent->memory = is_busy() ? 100 : 0;
    return SUCCESS;
}

/* ---- memory and who uses it ---- */
API Return nvmlDeviceGetMemoryInfo(Handle device, struct { Long total, free, used; } *into) {
    ANSWERABLE();
    into->total = (Long)(standin_plan()->memory_mib * 1048576.0);
    into->used = standin_used((int)index_of(device)) + RESERVED_BYTES;
    into->free = into->total - into->used;
    return SUCCESS;
}
API Return nvmlDeviceGetMemoryInfo_v2(Handle device, struct { unsigned version; Long total, reserved, free, used; } *into) {
    ANSWERABLE();
    into->total = (Long)(standin_plan()->memory_mib * 1048576.0);
    into->reserved = RESERVED_BYTES;
    into->used = standin_used((int)index_of(device));
    into->free = into->total - into->used - RESERVED_BYTES;
    return SUCCESS;
}
typedef struct {
    unsigned pid;
    Long bytes;
    unsigned gpu_instance, compute_instance;
} ProcessInfo;
static int lives(int pid) { return pid && !(kill(pid, 0) && errno == ESRCH); }
API Return nvmlDeviceGetComputeRunningProcesses_v3(Handle device, unsigned *room, ProcessInfo *into) {
    ANSWERABLE();
    ProcessInfo all[MAX_PROCESSES + 2];
    unsigned count = 0;
    Long other = (Long)standin_plan()->other_process_mib << 20;
    Long later = standin_state()->later ? (Long)standin_plan()->later_process_mib << 20 : 0;
    if (other) all[count++] = (ProcessInfo){1, other, ~0u, ~0u};
    if (later) all[count++] = (ProcessInfo){2, later, ~0u, ~0u};
    for (int i = 0; i < MAX_PROCESSES; i++) {
        Process *process = &standin_state()->process[i];
        Long bytes = process->used_bytes[index_of(device)];
        if (lives(process->pid) && bytes) all[count++] = (ProcessInfo){(unsigned)process->pid, bytes, ~0u, ~0u};
    }
    unsigned given = *room;
    *room = count;
    if (count && (!into || given < count)) return INSUFFICIENT_SIZE;
    memcpy(into, all, count * sizeof *all);
    return SUCCESS;
}
API Return nvmlDeviceGetComputeRunningProcesses_v2(Handle device, unsigned *room, ProcessInfo *into) {
    return nvmlDeviceGetComputeRunningProcesses_v3(device, room, into);
}
API Return nvmlDeviceGetComputeRunningProcesses(Handle device, unsigned *room, ProcessInfo *into) {
    return nvmlDeviceGetComputeRunningProcesses_v3(device, room, into);
}
