// A fake NVML library for tests. It has one GPU, at 00000000:3B:00.0, whose clock falls by 100 MHz with each reading.
#include <cstdio>
#include <cstring>

namespace {
int readings = 0;
int gpu = 0;
constexpr int kNotFound = 6, kNotSupported = 3;
}  // namespace

extern "C" {
int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  std::snprintf(text, size, "580.95.05");
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
