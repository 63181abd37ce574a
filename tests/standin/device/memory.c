/* libcudart: memory. Device memory is host memory with a size, so that it runs out as the plan says; addresses are
   reserved and not touched until somebody writes there. Sizes count in granules of 2 MiB, as a driver's do. */
#define _GNU_SOURCE
#include "work.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define GRANULE ((size_t)2 << 20)
typedef struct {
    char *at;
    size_t bytes, mapped; /* mapped 0: memory of the caller's (cudaHostRegister) */
    enum cudaMemoryType type;
    int device;
} Block;

static Block *blocks; /* in order of their addresses */
static int count, room;

static int last_at_or_before(const void *at) {
    int low = 0, high = count;
    while (low < high) {
        int middle = (low + high) / 2;
        if (blocks[middle].at <= (char *)at) low = middle + 1;
        else high = middle;
    }
    return low - 1;
}
static void add(Block block) {
    if (count == room) {
        room = room ? 2 * room : 256;
        blocks = realloc(blocks, sizeof(Block) * (size_t)room);
    }
    int i = last_at_or_before(block.at) + 1;
    memmove(blocks + i + 1, blocks + i, sizeof(Block) * (size_t)(count - i));
    blocks[i] = block;
    count++;
}

static int planned_refusal(void) {
    static uint64_t allocations;
    __sync_add_and_fetch(&standin_state()->allocations, 1);
    uint64_t first = (uint64_t)standin_plan()->fail_allocation, many = (uint64_t)standin_plan()->fail_allocations;
    uint64_t count = ++allocations;
    return first && count >= first && (!many || count < first + many);
}
/* Takes `bytes` of the device's memory; 0 if there are not so many. */
static int take(size_t bytes) {
    State *page = standin_state();
    uint64_t used = standin_used(current_device) + bytes;
    if (planned_refusal() || used > (uint64_t)(standin_plan()->memory_mib * 1048576.0)) return 0;
    standin_process()->used_bytes[current_device] += bytes;
    if (used > page->peak_bytes) page->peak_bytes = used;
    return 1;
}
static cudaError_t allocate(void **at, size_t bytes, enum cudaMemoryType type) {
    NEEDS_CONTEXT();
    *at = NULL;
    if (!bytes) return cudaSuccess;
    size_t mapped = (bytes + GRANULE - 1) & ~(GRANULE - 1);
    pthread_mutex_lock(&standin_mutex);
    int enough = type != cudaMemoryTypeDevice || take(mapped);
    pthread_mutex_unlock(&standin_mutex);
    if (!enough) return failed(cudaErrorMemoryAllocation);
    int how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    char *start = mmap(NULL, mapped + GRANULE, PROT_READ | PROT_WRITE, how, -1, 0);
    if (start == MAP_FAILED) return failed(cudaErrorMemoryAllocation);
    char *aligned = (char *)(((uintptr_t)start + GRANULE - 1) & ~(uintptr_t)(GRANULE - 1));
    if (aligned > start) munmap(start, (size_t)(aligned - start));
    munmap(aligned + mapped, (size_t)(start + GRANULE - aligned));
    pthread_mutex_lock(&standin_mutex);
    add((Block){aligned, bytes, mapped, type, current_device});
    pthread_mutex_unlock(&standin_mutex);
    *at = aligned;
    return cudaSuccess;
}
static cudaError_t release(void *at) {
    if (!at) return cudaSuccess;
    pthread_mutex_lock(&standin_mutex);
    int i = last_at_or_before(at);
    if (i < 0 || blocks[i].at != at) {
        pthread_mutex_unlock(&standin_mutex);
        return failed(cudaErrorInvalidValue);
    }
    Block block = blocks[i];
    memmove(blocks + i, blocks + i + 1, sizeof(Block) * (size_t)(count - i - 1));
    count--;
    if (block.type == cudaMemoryTypeDevice) standin_process()->used_bytes[block.device] -= block.mapped;
    pthread_mutex_unlock(&standin_mutex);
    if (block.mapped) munmap(block.at, block.mapped);
    return standin_fault() ? failed(standin_fault()) : cudaSuccess;
}

cudaError_t device_memory(void **at, size_t bytes) { return allocate(at, bytes, cudaMemoryTypeDevice); }
int within_allocation(const void *at, size_t bytes) {
    pthread_mutex_lock(&standin_mutex);
    int i = last_at_or_before(at);
    int inside = i >= 0 && (char *)at + bytes <= blocks[i].at + blocks[i].mapped;
    pthread_mutex_unlock(&standin_mutex);
    return inside;
}

API cudaError_t cudaDeviceSynchronize(void);
API cudaError_t cudaMalloc(void **at, size_t bytes) { return allocate(at, bytes, cudaMemoryTypeDevice); }
API cudaError_t cudaMallocAsync(void **at, size_t bytes, cudaStream_t s) { return cudaMalloc(at, bytes); }
API cudaError_t cudaMallocManaged(void **at, size_t bytes, unsigned f) { return allocate(at, bytes, cudaMemoryTypeManaged); }
API cudaError_t cudaMallocHost(void **at, size_t bytes) { return allocate(at, bytes, cudaMemoryTypeHost); }
API cudaError_t cudaHostAlloc(void **at, size_t bytes, unsigned f) { return allocate(at, bytes, cudaMemoryTypeHost); }
API cudaError_t cudaFree(void *at) {
    if (at) cudaDeviceSynchronize();
    else NEEDS_CONTEXT(); /* cudaFree(0) is the usual way to make a context */
    return release(at);
}
API cudaError_t cudaFreeAsync(void *at, cudaStream_t stream) { return release(at); }
API cudaError_t cudaFreeHost(void *at) { return release(at); }
API cudaError_t cudaHostRegister(void *at, size_t bytes, unsigned flags) {
    pthread_mutex_lock(&standin_mutex);
    add((Block){at, bytes, 0, cudaMemoryTypeHost, 0});
    pthread_mutex_unlock(&standin_mutex);
    return cudaSuccess;
}
API cudaError_t cudaHostUnregister(void *at) { return release(at); }
API cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned flags) {
    *device = host;
    return cudaSuccess;
}
API cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) {
    NEEDS_CONTEXT();
    uint64_t used = standin_used(current_device);
    *total = (size_t)(standin_plan()->memory_mib * 1048576.0);
    *free_bytes = used < *total ? *total - used : 0;
    return cudaSuccess;
}
API cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *at) {
    memset(a, 0, sizeof *a);
    pthread_mutex_lock(&standin_mutex);
    int i = last_at_or_before(at);
    int inside = i >= 0 && (char *)at < blocks[i].at + blocks[i].bytes;
    a->type = inside ? blocks[i].type : cudaMemoryTypeUnregistered;
    a->device = inside ? blocks[i].device : -2;
    pthread_mutex_unlock(&standin_mutex);
    a->devicePointer = inside ? (void *)at : NULL;
    a->hostPointer = a->type == cudaMemoryTypeDevice ? NULL : (void *)at;
    return cudaSuccess;
}

/* Pools: there is one, and it is not used. */
#define POOL ((cudaMemPool_t)0x1)
API cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device) {
    *pool = POOL;
    return cudaSuccess;
}
API cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr a, void *value) { return cudaSuccess; }
API cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr a, void *value) {
    *(uint64_t *)value = 0;
    return cudaSuccess;
}
API cudaError_t cudaMemPoolSetAccess(cudaMemPool_t p, const struct cudaMemAccessDesc *d, size_t n) { return cudaSuccess; }
API cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep) { return cudaSuccess; }
API cudaError_t cudaDeviceGetGraphMemAttribute(int d, enum cudaGraphMemAttributeType a, void *value) {
    *(uint64_t *)value = 0;
    return cudaSuccess;
}
API cudaError_t cudaDeviceSetGraphMemAttribute(int d, enum cudaGraphMemAttributeType a, void *v) { return cudaSuccess; }
