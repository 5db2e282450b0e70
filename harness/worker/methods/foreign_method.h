// ForeignMethod: a method that is not compiled into this program, such as a function of a Python file.
#pragma once

#include <string>

#include "attn/method.h"

namespace attnbench {

class ForeignMethod : public attn::AttentionMethod {
 public:
  // Whether reference() can be called. Results of a method without a reference are measured, but the record marks them as
  // unverified.
  virtual bool has_reference() const = 0;

  // Whether reference() computes all rows, also those that are not asked for, with memory that grows as the square of the length.
  virtual bool reference_computes_all_rows() const { return false; }

  // Prepares the calls of a problem, for example by compiling. Called before the first call of the problem; its time is recorded
  // and is no part of the samples. Returns whether there was anything to prepare.
  virtual bool set_up(const attn::Problem& problem, attn::Protocol protocol) = 0;

  // Whether set_up() prepares anything.
  virtual bool has_setup() const = 0;

  // How much longer a call takes than one of the same operators from C++, in microseconds: the median time of calls of a function
  // that does nothing.
  virtual double call_overhead_us(const attn::Inputs& inputs) = 0;

  // The name of the method in tables and figures; empty if they show the text of the method.
  virtual std::string shown_name() const = 0;

  // How time and memory of a call grow with the length, such as "O(N)"; empty if the method does not say.
  virtual std::string time_order(attn::Protocol protocol) const = 0;
  virtual std::string memory_order(attn::Protocol protocol) const = 0;
};

// The same method as a ForeignMethod, or null if it is compiled into this program.
inline ForeignMethod* foreign(attn::AttentionMethod* method) { return dynamic_cast<ForeignMethod*>(method); }
inline const ForeignMethod* foreign(const attn::AttentionMethod* method) { return dynamic_cast<const ForeignMethod*>(method); }

}  // namespace attnbench
