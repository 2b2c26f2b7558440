/* An NVML for tests. Every call reads the file that FAKE_NVML names, so that what the GPUs do can
   be changed while a worker looks. fake.py writes the file: a line for each thing, its fields
   between tabs, such as "gpu <uuid> name=A100 vram=1024". A GPU that does not have a key answers
   that this is not supported, as a real one does. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
enum {
    SUCCESS, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND = 6, INSUFFICIENT_SIZE,
    DRIVER_NOT_LOADED = 9, TIMEOUT, GPU_IS_LOST = 15
};
enum { FILE_BYTES = 1 << 16, DEVICES = 64, POLL_US = 20000, FIELD = 96 };

typedef unsigned long long u64;
typedef struct { char uuid[FIELD]; } Device;
typedef struct { unsigned version; u64 total, reserved, free, used; } Memory2;
typedef struct { u64 total, free, used; } Memory;
typedef struct { unsigned gpu, memory; } Utilisation;
typedef struct { unsigned version; int sensor, celsius; } Temperature;
typedef struct { unsigned pid; u64 bytes; unsigned instance, compute; } Process;
typedef struct { Device *device; u64 type, data; unsigned instance, compute; } Event;
typedef struct { u64 seen; int count; Device *devices[DEVICES]; } EventSet;
typedef struct { unsigned counts[8]; u64 mib; } Attributes;

static Device known[DEVICES];
static int inits;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Return the file's next line whose first field is `kind`, and move the place behind it. */
static char *next(char **place, const char *kind) {
    size_t length = strlen(kind);
    char *line;
    while ((line = strsep(place, "\n")))
        if (!strncmp(line, kind, length) && line[length] == '\t') return line + length + 1;
    return NULL;
}

static int load(char *text) {
    const char *name = getenv("FAKE_NVML");
    FILE *file = name ? fopen(name, "r") : NULL;
    if (!file) return DRIVER_NOT_LOADED;
    text[fread(text, 1, FILE_BYTES - 1, file)] = 0;
    fclose(file);
    return inits ? SUCCESS : UNINITIALIZED;
}

static int begins(const char *line, const char *uuid) {
    size_t length = strlen(uuid);
    return !strncmp(line, uuid, length) && (line[length] == '\t' || !line[length]);
}

/* Return a handle that stays the same for a UUID, as a pointer into `known`. */
static Device *device_of(const char *uuid) {
    Device *found = NULL;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < DEVICES && !found; i++) {
        if (!*known[i].uuid) snprintf(known[i].uuid, FIELD, "%.*s", (int)strcspn(uuid, "\t"), uuid);
        if (begins(uuid, known[i].uuid)) found = &known[i];
    }
    pthread_mutex_unlock(&lock);
    return found;
}

/* Read the value of a key of a GPU or of a slice of one. */
static int value(Device *device, const char *key, char *out, size_t size) {
    char text[FILE_BYTES], *place, *line, wanted[FIELD];
    int bad = load(text);
    if (bad) return bad;
    if (!device) return INVALID_ARGUMENT;
    snprintf(wanted, FIELD, "\t%s=", key);
    char copy[FILE_BYTES];
    strcpy(copy, text);
    for (place = copy; (line = next(&place, "fail"));)
        if (begins(line, device->uuid)) return atoi(strchr(line, '\t'));
    for (int slice = 0; slice < 2; slice++) {
        strcpy(copy, text);
        for (place = copy; (line = next(&place, slice ? "slice" : "gpu"));) {
            if (!begins(line, device->uuid)) continue;
            if (!*key) return SUCCESS;
            if (!(line = strstr(line, wanted))) return NOT_SUPPORTED;
            line += strlen(wanted);
            size_t length = strcspn(line, "\t");
            if (length >= size) return INSUFFICIENT_SIZE;
            snprintf(out, size, "%.*s", (int)length, line);
            return SUCCESS;
        }
    }
    return NOT_FOUND;
}

static int number(Device *device, const char *key, u64 *out) {
    char text[FIELD] = "";
    int bad = value(device, key, text, FIELD);
    if (!bad) *out = strtoull(text, NULL, 10);
    return bad;
}

static int small(Device *device, const char *key, unsigned *out) {
    u64 wide = 0;
    int bad = number(device, key, &wide);
    if (!bad) *out = (unsigned)wide;
    return bad;
}

static int nth(const char *kind, unsigned index, const char *parent, Device **out) {
    char text[FILE_BYTES], *place = text, *line, wanted[FIELD + 16];
    int bad = load(text);
    if (bad) return bad;
    snprintf(wanted, sizeof wanted, "\tparent=%s", parent ? parent : "");
    while ((line = next(&place, kind)))
        if ((!parent || strstr(line, wanted)) && !index--) return !(*out = device_of(line));
    return NOT_FOUND;
}

API int nvmlInitWithFlags(unsigned flags) {
    char text[FILE_BYTES];
    (void)flags;
    int bad = load(text) == DRIVER_NOT_LOADED;
    if (!bad) __sync_fetch_and_add(&inits, 1);
    return bad ? DRIVER_NOT_LOADED : SUCCESS;
}
API int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
API int nvmlShutdown(void) {
    if (!inits) return UNINITIALIZED;
    __sync_fetch_and_sub(&inits, 1);
    return SUCCESS;
}
API const char *nvmlErrorString(int code) {
    return code == GPU_IS_LOST ? "GPU is lost" : "an error of the tests' NVML";
}
API int nvmlSystemGetDriverVersion(char *out, unsigned size) {
    char text[FILE_BYTES], *place = text, *line;
    int bad = load(text);
    if (bad) return bad;
    if (!(line = next(&place, "driver"))) return NOT_SUPPORTED;
    snprintf(out, size, "%s", line);
    return SUCCESS;
}
API int nvmlSystemGetCudaDriverVersion_v2(int *out) { *out = 12040; return SUCCESS; }

API int nvmlDeviceGetCount_v2(unsigned *count) {
    Device *device;
    int bad = SUCCESS;
    for (*count = 0; !(bad = nth("gpu", *count, NULL, &device)); ++*count) continue;
    return bad == NOT_FOUND ? SUCCESS : bad;
}
API int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **out) {
    int bad = nth("gpu", index, NULL, out);
    if (bad) return bad == NOT_FOUND ? INVALID_ARGUMENT : bad;
    bad = value(*out, "", NULL, 0);
    return bad == GPU_IS_LOST ? bad : SUCCESS;
}
API int nvmlDeviceGetHandleByUUID(const char *uuid, Device **out) {
    *out = device_of(uuid);
    int bad = value(*out, "", NULL, 0);
    return bad == GPU_IS_LOST || bad == NOT_FOUND || bad == UNINITIALIZED ? bad : SUCCESS;
}
API int nvmlDeviceGetIndex(Device *device, unsigned *out) {
    Device *at;
    for (*out = 0; !nth("gpu", *out, NULL, &at); ++*out)
        if (at == device) return SUCCESS;
    return NOT_FOUND;
}
API int nvmlDeviceGetMinorNumber(Device *device, unsigned *out) {
    return nvmlDeviceGetIndex(device, out);
}
API int nvmlDeviceGetUUID(Device *device, char *out, unsigned size) {
    int bad = value(device, "", NULL, 0);
    if (!bad) snprintf(out, size, "%s", device->uuid);
    return bad;
}
API int nvmlDeviceGetName(Device *device, char *out, unsigned size) {
    return value(device, "name", out, size);
}
API int nvmlDeviceGetCudaComputeCapability(Device *device, int *major, int *minor) {
    char text[FIELD];
    int bad = value(device, "capability", text, FIELD);
    if (!bad) sscanf(text, "%d.%d", major, minor);
    return bad;
}

API int nvmlDeviceGetMemoryInfo(Device *device, Memory *out) {
    int bad = number(device, "vram", &out->total);
    if (!bad) bad = number(device, "memory", &out->used);
    out->free = out->total - out->used;
    return bad;
}
API int nvmlDeviceGetMemoryInfo_v2(Device *device, Memory2 *out) {
    Memory plain;
    int bad = nvmlDeviceGetMemoryInfo(device, &plain);
    out->total = plain.total, out->used = plain.used, out->free = plain.free, out->reserved = 0;
    return bad;
}
API int nvmlDeviceGetUtilizationRates(Device *device, Utilisation *out) {
    int bad = small(device, "utilisation", &out->gpu);
    out->memory = out->gpu / 2;
    return bad;
}
API int nvmlDeviceGetPowerUsage(Device *device, unsigned *milliwatts) {
    return small(device, "power", milliwatts);
}
API int nvmlDeviceGetTotalEnergyConsumption(Device *device, u64 *millijoules) {
    return number(device, "energy", millijoules);
}
API int nvmlDeviceGetTemperature(Device *device, int sensor, unsigned *celsius) {
    return sensor ? INVALID_ARGUMENT : small(device, "temperature", celsius);
}
API int nvmlDeviceGetTemperatureV(Device *device, Temperature *out) {
    return nvmlDeviceGetTemperature(device, out->sensor, (unsigned *)&out->celsius);
}
/* Corrected errors are 0, uncorrected 1; volatile ones are 0, those of the card's life 1. */
API int nvmlDeviceGetTotalEccErrors(Device *device, int kind, int counter, u64 *out) {
    int bad = number(device, "ecc", out);
    if (!bad && !(kind == 1 && counter == 0)) *out = 0;
    return bad;
}

static int processes(Device *device, const char *kind, unsigned *count, Process *out) {
    char text[FILE_BYTES], *place = text, *line;
    unsigned room = *count;
    int bad = value(device, "", NULL, 0);
    if (!bad) bad = load(text);
    if (bad) return bad;
    for (*count = 0; (line = next(&place, kind));) {
        if (!begins(line, device->uuid)) continue;
        Process found = {0, 0, ~0u, ~0u};
        sscanf(line + strlen(device->uuid), "\t%u\t%llu", &found.pid, &found.bytes);
        if (*count < room) out[*count] = found;
        ++*count;
    }
    return *count > room ? INSUFFICIENT_SIZE : SUCCESS;
}
#define PROCESSES(name, kind)                                                  \
    API int name(Device *device, unsigned *count, Process *out) {              \
        return processes(device, kind, count, out);                            \
    }
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, "compute")
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, "compute")
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, "graphics")
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, "graphics")

API int nvmlDeviceGetMigMode(Device *device, unsigned *current, unsigned *pending) {
    int bad = small(device, "mig", current);
    *pending = *current;
    return bad;
}
API int nvmlDeviceGetMaxMigDeviceCount(Device *device, unsigned *count) {
    unsigned mode;
    int bad = small(device, "mig", &mode);
    *count = bad ? 0 : 7;
    return bad == NOT_SUPPORTED ? SUCCESS : bad;
}
API int nvmlDeviceGetMigDeviceHandleByIndex(Device *device, unsigned index, Device **out) {
    return device ? nth("slice", index, device->uuid, out) : INVALID_ARGUMENT;
}
API int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Device *slice, Device **out) {
    char uuid[FIELD];
    int bad = value(slice, "parent", uuid, FIELD);
    if (!bad) *out = device_of(uuid);
    return bad == NOT_SUPPORTED ? INVALID_ARGUMENT : bad;
}
API int nvmlDeviceIsMigDeviceHandle(Device *device, unsigned *out) {
    char uuid[FIELD];
    int bad = value(device, "parent", uuid, FIELD);
    *out = !bad;
    return bad == NOT_SUPPORTED ? SUCCESS : bad;
}
API int nvmlDeviceGetGpuInstanceId(Device *device, unsigned *out) {
    return small(device, "instance", out);
}
API int nvmlDeviceGetComputeInstanceId(Device *device, unsigned *out) {
    *out = 0;
    return value(device, "", NULL, 0);
}
API int nvmlDeviceGetAttributes_v2(Device *device, Attributes *out) {
    memset(out, 0, sizeof *out);
    int bad = number(device, "vram", &out->mib);
    out->mib >>= 20;
    return bad;
}

static u64 events_until_now(void) {
    char text[FILE_BYTES], *place = text, *line;
    u64 last = 0;
    if (!load(text))
        while ((line = next(&place, "event"))) last = strtoull(line, NULL, 10);
    return last;
}
API int nvmlEventSetCreate(EventSet **out) {
    *out = calloc(1, sizeof **out);
    (*out)->seen = events_until_now();
    return inits ? SUCCESS : UNINITIALIZED;
}
API int nvmlDeviceGetSupportedEventTypes(Device *device, u64 *out) {
    *out = 0x1 | 0x2 | 0x8;
    return value(device, "", NULL, 0);
}
API int nvmlDeviceRegisterEvents(Device *device, u64 types, EventSet *set) {
    (void)types;
    int bad = value(device, "", NULL, 0);
    if (!bad && set->count < DEVICES) set->devices[set->count++] = device;
    return bad;
}
static int next_event(EventSet *set, Event *out) {
    char text[FILE_BYTES], *place = text, *line, uuid[FIELD];
    int bad = load(text);
    while (!bad && (line = next(&place, "event"))) {
        u64 at, type, data;
        if (sscanf(line, "%llu\t%95[^\t]\t%llu\t%llu", &at, uuid, &type, &data) != 4) continue;
        for (int i = 0; at > set->seen && i < set->count; i++)
            if (!strcmp(set->devices[i]->uuid, uuid)) {
                *out = (Event){set->devices[i], type, data, ~0u, ~0u};
                set->seen = at;
                return SUCCESS;
            }
    }
    for (int i = 0; i < set->count && !bad; i++)
        if (value(set->devices[i], "", NULL, 0) == GPU_IS_LOST) return GPU_IS_LOST;
    return bad ? bad : TIMEOUT;
}
API int nvmlEventSetWait_v2(EventSet *set, Event *out, unsigned milliseconds) {
    int bad;
    for (u64 waited = 0; (bad = next_event(set, out)) == TIMEOUT; waited += POLL_US) {
        if (waited >= milliseconds * 1000ull) return TIMEOUT;
        usleep(POLL_US);
    }
    return bad;
}
API int nvmlEventSetFree(EventSet *set) {
    free(set);
    return SUCCESS;
}
