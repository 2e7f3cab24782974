/* A stand-in for libnvidia-ml.so.1. It answers from the file named by TSCHED_NVML, read again at every call:
 *
 *   init CODE                                       what nvmlInit returns
 *   device UUID TOTAL USED FREE MIG                 in order of index; MIG is 0, 1, or - where it is not known
 *   instance PARENT-UUID SLOT UUID TOTAL USED FREE  of a device with MIG
 *   process UUID PID BYTES                          BYTES is - where the driver does not say
 *
 * TOTAL is - where the memory cannot be read. Built with OLD it is a driver that does not know what was added last. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };

typedef unsigned long long bytes;
typedef struct { char uuid[64], parent[64]; int slot, mig, told; bytes total, used, free; } Device;
typedef struct { bytes total, free, used; } Memory;
typedef struct { unsigned pid; bytes used; unsigned gpu_instance, compute_instance; } Process;
typedef struct { char uuid[64]; unsigned pid; bytes used; } Holding;

static Device devices[16];
static Holding holdings[64];
static int device_count, holding_count, init_code;

static bytes number(const char *text) { return strcmp(text, "-") ? strtoull(text, NULL, 10) : ~0ULL; }

static void read_figures(void) {
    FILE *file = fopen(getenv("TSCHED_NVML"), "r");
    char line[256], a[64], b[64], c[64], d[64], e[64], f[64];
    device_count = holding_count = init_code = 0;
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "init %d", &init_code) == 1) continue;
        if (sscanf(line, "process %63s %63s %63s", a, b, c) == 3) {
            Holding *held = &holdings[holding_count++];
            strcpy(held->uuid, a), held->pid = (unsigned)number(b), held->used = number(c);
            continue;
        }
        Device *device = &devices[device_count];
        memset(device, 0, sizeof *device);
        if (sscanf(line, "device %63s %63s %63s %63s %63s", a, b, c, d, e) == 5) {
            strcpy(device->uuid, a), device->mig = strcmp(e, "-") ? atoi(e) : -1;
        } else if (sscanf(line, "instance %63s %63s %63s %63s %63s %63s", f, e, a, b, c, d) == 6) {
            strcpy(device->uuid, a), strcpy(device->parent, f), device->slot = atoi(e), device->mig = -1;
        } else continue;
        device->told = strcmp(b, "-") != 0;
        device->total = number(b), device->used = number(c), device->free = number(d);
        device_count++;
    }
    if (file) fclose(file);
}

static int find(const char *uuid, void **handle) {
    for (int i = 0; i < device_count; i++)
        if (!strcmp(devices[i].uuid, uuid)) { *handle = (void *)(long)(i + 1); return SUCCESS; }
    return NOT_FOUND;
}

static Device *at(void *handle) { return &devices[(long)handle - 1]; }

int nvmlInitWithFlags(unsigned flags) { (void)flags; read_figures(); return init_code; }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { (void)code; return "stand-in"; }

int nvmlDeviceGetCount_v2(unsigned *count) {
    read_figures();
    *count = 0;
    for (int i = 0; i < device_count; i++) *count += !devices[i].parent[0];
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    read_figures();
    for (int i = 0; i < device_count; i++)
        if (!devices[i].parent[0] && index-- == 0) { *handle = (void *)(long)(i + 1); return SUCCESS; }
    return INVALID_ARGUMENT;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) { read_figures(); return find(uuid, handle); }

int nvmlDeviceGetMemoryInfo(void *handle, Memory *memory) {
    Device *device = at(handle);
    if (!device->told) return NOT_SUPPORTED;
    memory->total = device->total, memory->used = device->used, memory->free = device->free;
    return SUCCESS;
}

int nvmlDeviceGetMigMode(void *handle, unsigned *now, unsigned *pending) {
    if (at(handle)->mig < 0) return NOT_SUPPORTED;
    *now = *pending = (unsigned)at(handle)->mig;
    return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *count) { (void)handle; *count = 7; return SUCCESS; }

int nvmlDeviceGetMigDeviceHandleByIndex(void *parent, unsigned slot, void **handle) {
    for (int i = 0; i < device_count; i++)
        if (!strcmp(devices[i].parent, at(parent)->uuid) && devices[i].slot == (int)slot) {
            *handle = (void *)(long)(i + 1);
            return SUCCESS;
        }
    return NOT_FOUND;
}

#ifndef OLD
int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, Process *processes) {
    unsigned room = *count, found = 0;
    for (int i = 0; i < holding_count; i++)
        if (!strcmp(holdings[i].uuid, at(handle)->uuid)) {
            if (processes && found < room)
                processes[found] = (Process){holdings[i].pid, holdings[i].used, ~0u, ~0u};
            found++;
        }
    *count = found;
    return found > (processes ? room : 0) ? INSUFFICIENT_SIZE : SUCCESS;
}
#endif
