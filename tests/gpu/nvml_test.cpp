// Tests of the record columns that are read from NVML, with a fake NVML library.
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

TEST(Nvml, SummarisesItsReadings) {
  if (!dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_NOLOAD)) {
    Nvml missing("00000000:3B:00.0");
    if (!dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_NOLOAD)) {  // a machine without a driver
      missing.watch();
      EXPECT_EQ(columns_of(missing).to_json(), Record().to_json());
    }
  }
  // From now on the fake library is found by NVML's name, libnvidia-ml.so.1.
  ASSERT_TRUE(dlopen(ATTNBENCH_FAKE_NVML, RTLD_NOW | RTLD_GLOBAL)) << dlerror();
  Nvml other("00000000:AF:00.0");
  other.watch();
  EXPECT_EQ(columns_of(other).text("gpu_driver"), "580.95.05");
  EXPECT_FALSE(columns_of(other).has("gpu_clock_mhz")) << "the fake library has no GPU at this address";

  Nvml nvml("00000000:3B:00.0");
  EXPECT_FALSE(columns_of(nvml).has("gpu_clock_mhz")) << "there was no reading yet";
  nvml.watch();
  nvml.watch();  // takes no second reading, because it comes too soon
  EXPECT_EQ(columns_of(nvml).number("gpu_clock_min_mhz"), 1900);
  EXPECT_EQ(columns_of(nvml).text("gpu_throttle_reasons"), "none") << "an idle GPU is not a throttled one";
  for (int i = 0; i < 2; ++i) {
    std::this_thread::sleep_for(std::chrono::duration<double>(1.2 * Nvml::kPauseS));
    nvml.watch();
  }
  const auto record = columns_of(nvml);
  EXPECT_EQ(record.number("gpu_clock_mhz"), 1800);
  EXPECT_EQ(record.number("gpu_clock_min_mhz"), 1700);
  EXPECT_EQ(record.number("gpu_memory_clock_mhz"), 3201);
  EXPECT_EQ(record.number("gpu_temperature_c"), 43);
  EXPECT_FALSE(record.has("gpu_power_w")) << "the fake library does not support it";
  EXPECT_EQ(record.text("gpu_throttle_reasons"), "sw_power_cap hw_thermal_slowdown");
}

TEST(Nvml, NamesTheThrottleReasons) {
  EXPECT_EQ(throttle_text(0), "none");
  EXPECT_EQ(throttle_text(0x20), "sw_thermal_slowdown");
  EXPECT_EQ(throttle_text(0x1000000000000000), "other");
}

}  // namespace
}  // namespace attnbench
