// Fuzzes the reading of phones and of lists of utterances. For any text, each must give a list or throw a c10::ValueError.
#include <c10/util/Exception.h>

#include <string_view>

#include "experiments/data/speech.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    experiments::parse_phones("phones.txt", text);
  } catch (const c10::ValueError&) {
  }
  try {
    experiments::parse_utterances("training.tsv", text, {"a", "b", "sil"});
  } catch (const c10::ValueError&) {
  }
  return 0;
}
