// A fake NVML library for tests. It has one GPU, at 00000000:3B:00.0, whose clock falls by 100 MHz with each reading. The
// environment variable ATTNBENCH_FAKE_NVML chooses a fault: old-driver (one for CUDA 12.4), no-gpu or broken-driver.
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {
int readings = 0;
int gpu = 0;
constexpr int kNotFound = 6, kNotSupported = 3, kNotLoaded = 9;

bool has_fault(const char* name) {
  const char* const fault = std::getenv("ATTNBENCH_FAKE_NVML");
  return fault && std::strcmp(fault, name) == 0;
}
}  // namespace

extern "C" {
int nvmlInit_v2() { return has_fault("broken-driver") ? kNotLoaded : 0; }
const char* nvmlErrorString(int code) { return code == kNotLoaded ? "Driver Not Loaded" : "another error"; }
int nvmlShutdown() { return 0; }
int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  std::snprintf(text, size, "%s", has_fault("old-driver") ? "550.54.14" : "580.95.05");
  return 0;
}
int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = has_fault("old-driver") ? 12040 : 13000;
  return 0;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = has_fault("no-gpu") ? 0 : 1;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = &gpu;
  return index == 0 ? 0 : kNotFound;
}
int nvmlDeviceGetName(void*, char* text, unsigned size) {
  std::snprintf(text, size, "a fake GPU");
  return 0;
}
int nvmlDeviceGetCudaComputeCapability(void*, int* major, int* minor) {
  *major = 9;
  *minor = 0;
  return 0;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** device) {
  if (std::strcmp(id, "00000000:3B:00.0") != 0) return kNotFound;
  *device = &gpu;
  return 0;
}
int nvmlDeviceGetClockInfo(void* device, unsigned type, unsigned* mhz) {
  if (device != &gpu || type == 0) return kNotFound;
  if (type == 1) ++readings;
  *mhz = type == 1 ? 2000 - 100 * unsigned(readings) : 3201;
  return 0;
}
int nvmlDeviceGetTemperature(void*, unsigned sensor, unsigned* celsius) {
  *celsius = 40 + unsigned(readings);
  return sensor == 0 ? 0 : kNotFound;
}
int nvmlDeviceGetPowerUsage(void*, unsigned*) { return kNotSupported; }
int nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* reasons) {
  *reasons = readings == 2 ? 0x44 : 0x1;
  return 0;
}
}
