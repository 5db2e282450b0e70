// Refusal, the error about a computation that was asked for and that makes no sense, whatever the machine.
#pragma once

#include <c10/util/Exception.h>

#include <string>

namespace attn {

// Says as data what a program may decide by: the kind of the mistake, and which field of the request it is in.
struct Refusal : c10::ValueError {
  enum class Kind {
    wrong,   // the field has a value that it cannot have
    unknown  // there is no method, function or option of this name
  };
  Refusal(Kind why, std::string of, const std::string& text)
      : c10::ValueError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, text), kind(why), field(std::move(of)) {}

  Kind kind;
  std::string field;  // as sweep files name it, such as "method" or "key_lengths"; empty if several are wrong together
};

}  // namespace attn
