/* A stand-in for the driver's checkpoint calls, on a machine that has no driver.
 *
 * It keeps one state per process in the folder $TSCHED_LIBCUDA, a file PID, so that every process which loads this
 * library sees the same states. A process without such a file has no CUDA context. Every call is written to the file
 * `calls`. Faults are files that a test makes: STEP.PID or STEP (lock, checkpoint, restore, unlock) holds
 * "CODE MILLISECONDS": the call waits so long, then returns CODE and, where CODE is 0, does its work.
 * $TSCHED_LIBCUDA_VERSION and $TSCHED_LIBCUDA_INIT are what cuDriverGetVersion and cuInit answer.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int CUresult;
enum { SUCCESS = 0, INVALID_VALUE = 1, ILLEGAL_STATE = 401, NOT_FOUND = 500, NOT_READY = 600 };
enum { RUNNING = 0, LOCKED = 1, CHECKPOINTED = 2 };
typedef struct { unsigned int timeoutMs, reserved0; uint64_t reserved1[7]; } LockArgs;

static void place(char *path, size_t size, const char *name) {
    const char *folder = getenv("TSCHED_LIBCUDA");
    snprintf(path, size, "%s/%s", folder ? folder : "/nonexistent", name);
}

static int state_of(int pid) {
    char name[32], path[512];
    int state = -1;
    snprintf(name, sizeof name, "%d", pid);
    place(path, sizeof path, name);
    FILE *file = fopen(path, "r");
    if (!file) return -1;
    if (fscanf(file, "%d", &state) != 1) state = -1;
    fclose(file);
    return state;
}

static void enter(int pid, int state) {
    char name[32], path[512], fresh[520];
    snprintf(name, sizeof name, "%d", pid);
    place(path, sizeof path, name);
    snprintf(fresh, sizeof fresh, "%s.new", path);
    FILE *file = fopen(fresh, "w");
    if (!file) return;
    fprintf(file, "%d\n", state);
    fclose(file);
    rename(fresh, path);
}

static void record(const char *step, int pid) {
    char path[512], line[64];
    place(path, sizeof path, "calls");
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (file < 0) return;
    int length = snprintf(line, sizeof line, "%s %d\n", step, pid);
    if (write(file, line, length) != length) perror("calls");
    close(file);
}

static int read_fault(const char *name, int *code, int *wait_ms) {
    char path[512];
    place(path, sizeof path, name);
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    int read = fscanf(file, "%d %d", code, wait_ms);
    fclose(file);
    return read == 2;
}

static CUresult fault(const char *step, int pid, unsigned int limit_ms) {
    char name[64];
    int code = SUCCESS, wait_ms = 0;
    snprintf(name, sizeof name, "%s.%d", step, pid);
    if (!read_fault(name, &code, &wait_ms)) read_fault(step, &code, &wait_ms);
    if (limit_ms && (unsigned int)wait_ms > limit_ms) {
        usleep(limit_ms * 1000u);
        return NOT_READY;
    }
    usleep(wait_ms * 1000u);
    return code;
}

static CUresult move(const char *step, int pid, int from, int to, unsigned int limit_ms) {
    record(step, pid);
    int state = state_of(pid);
    if (state < 0) return INVALID_VALUE;
    if (state != from) return ILLEGAL_STATE;
    CUresult result = fault(step, pid, limit_ms);
    if (result == SUCCESS) enter(pid, to);
    return result;
}

CUresult cuInit(unsigned int flags) {
    const char *told = getenv("TSCHED_LIBCUDA_INIT");
    return told ? atoi(told) : flags ? INVALID_VALUE : SUCCESS;
}

CUresult cuDriverGetVersion(int *version) {
    const char *told = getenv("TSCHED_LIBCUDA_VERSION");
    *version = told ? atoi(told) : 13000;
    return SUCCESS;
}

CUresult cuCheckpointProcessGetState(int pid, int *state) {
    int found = state_of(pid);
    if (found < 0) return INVALID_VALUE;
    *state = found;
    return SUCCESS;
}

CUresult cuCheckpointProcessGetRestoreThreadId(int pid, int *tid) {
    *tid = pid;
    return state_of(pid) < 0 ? INVALID_VALUE : SUCCESS;
}

CUresult cuCheckpointProcessLock(int pid, LockArgs *args) {
    return move("lock", pid, RUNNING, LOCKED, args ? args->timeoutMs : 0);
}

CUresult cuCheckpointProcessCheckpoint(int pid, void *args) {
    (void)args;
    return move("checkpoint", pid, LOCKED, CHECKPOINTED, 0);
}

CUresult cuCheckpointProcessRestore(int pid, void *args) {
    (void)args;
    return move("restore", pid, CHECKPOINTED, LOCKED, 0);
}

CUresult cuCheckpointProcessUnlock(int pid, void *args) {
    (void)args;
    return move("unlock", pid, LOCKED, RUNNING, 0);
}

CUresult cuGetErrorName(CUresult error, const char **name) {
    switch (error) {
    case 1: *name = "CUDA_ERROR_INVALID_VALUE"; break;
    case 2: *name = "CUDA_ERROR_OUT_OF_MEMORY"; break;
    case 401: *name = "CUDA_ERROR_ILLEGAL_STATE"; break;
    case 600: *name = "CUDA_ERROR_NOT_READY"; break;
    default: *name = "CUDA_ERROR_UNKNOWN";
    }
    return SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char **text) {
    return cuGetErrorName(error, text);
}

/* How the binding finds every other call. */
CUresult cuGetProcAddress_v2(const char *symbol, void **found, int version, uint64_t flags, int *status) {
    (void)version, (void)flags;
    *found = strcmp(symbol, "cuGetProcAddress") ? dlsym(RTLD_DEFAULT, symbol) : (void *)cuGetProcAddress_v2;
    if (!*found) {
        void *self = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
        *found = self ? dlsym(self, symbol) : NULL;
    }
    if (status) *status = *found ? 0 : 1;
    return *found ? SUCCESS : NOT_FOUND;
}
