// The columns that NVML fills, read from a library in its place.
#include "harness/worker/cuda/nvml.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace attnbench {
namespace {

Record columns_of(const Nvml& nvml) {
  Record record;
  nvml.set_columns(record);
  return record;
}

TEST(Nvml, SumsUpItsReadings) {
  if (!dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_NOLOAD)) {
    Nvml missing("00000000:3B:00.0");
    if (!dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_NOLOAD)) {  // a machine without a driver
      missing.watch();
      EXPECT_EQ(columns_of(missing).to_json(), Record().to_json());
    }
  }
  // From now on the library in place of NVML is found by NVML's name.
  ASSERT_TRUE(dlopen(ATTNBENCH_FAKE_NVML, RTLD_NOW | RTLD_GLOBAL)) << dlerror();
  Nvml other("00000000:AF:00.0");
  other.watch();
  EXPECT_EQ(columns_of(other).text("gpu_driver"), "580.95.05");
  EXPECT_FALSE(columns_of(other).has("gpu_clock_mhz")) << "there is no such GPU";

  Nvml nvml("00000000:3B:00.0");
  EXPECT_FALSE(columns_of(nvml).has("gpu_clock_mhz")) << "before any reading";
  nvml.watch();
  nvml.watch();  // too soon for a second reading
  EXPECT_EQ(columns_of(nvml).number("gpu_clock_min_mhz"), 1900);
  EXPECT_EQ(columns_of(nvml).text("gpu_throttle_reasons"), "none") << "idle between samples is no reason";
  for (int i = 0; i < 2; ++i) {
    std::this_thread::sleep_for(std::chrono::duration<double>(1.2 * Nvml::kPauseS));
    nvml.watch();
  }
  const auto record = columns_of(nvml);
  EXPECT_EQ(record.number("gpu_clock_mhz"), 1800);
  EXPECT_EQ(record.number("gpu_clock_min_mhz"), 1700);
  EXPECT_EQ(record.number("gpu_memory_clock_mhz"), 3201);
  EXPECT_EQ(record.number("gpu_temperature_c"), 43);
  EXPECT_FALSE(record.has("gpu_power_w")) << "not supported there";
  EXPECT_EQ(record.text("gpu_throttle_reasons"), "sw_power_cap hw_thermal_slowdown");
}

TEST(Nvml, NamesTheReasons) {
  EXPECT_EQ(throttle_text(0), "none");
  EXPECT_EQ(throttle_text(0x20), "sw_thermal_slowdown");
  EXPECT_EQ(throttle_text(0x1000000000000000), "other");
}

}  // namespace
}  // namespace attnbench
