// Which kernels of a program are known, by what it loads, looks up and unloads.
#include "backend/runner/slicing/kernel_catalogue.h"

#include <gtest/gtest.h>

#include "tests/unit/runner/fake_device.h"

namespace bandsaw::runner {
namespace {

class KernelCatalogueTest : public testing::Test {
 protected:
  static constexpr uint64_t kBase = 0x7d0000000000;

  ModuleRef load() {
    auto module = std::make_shared<Module>();
    kernels_.module_loaded(module, {});
    return module;
  }
  FunctionRef find(const ModuleRef& module, const std::string& name) {
    auto function = std::make_shared<Function>();
    kernels_.function_found(module, name, function);
    return function;
  }
  KnownKernelRef known(const FunctionRef& function) { return kernels_.find({nullptr, function}); }

  FakeDevice device_{kBase, nullptr};
  KernelCloner cloner_{&device_, 0};
  KernelCatalogue kernels_{&cloner_, [] { return true; }};
};

TEST_F(KernelCatalogueTest, AKernelIsOneHoweverOftenItIsLookedUp) {
  const ModuleRef module = load(), other = load();
  const FunctionRef first = find(module, "fill"), again = find(module, "fill"), sum = find(module, "sum");
  const FunctionRef namesake = find(other, "fill");
  ASSERT_TRUE(known(first));
  EXPECT_EQ(known(first), known(again));
  EXPECT_NE(known(first), known(sum));
  EXPECT_NE(known(first), known(namesake));
  EXPECT_EQ(known(sum)->name, "sum");
}

TEST_F(KernelCatalogueTest, AFunctionOfAKernelIsThatKernel) {
  const auto library = std::make_shared<Library>();
  kernels_.library_loaded(library, {});
  const auto kernel = std::make_shared<Kernel>();
  const auto function = std::make_shared<Function>(), stranger = std::make_shared<Function>();
  kernels_.kernel_found(library, "fill", kernel);
  kernels_.function_of_kernel(kernel, function);
  kernels_.function_of_kernel(std::make_shared<Kernel>(), stranger);
  ASSERT_TRUE(kernels_.find({kernel, nullptr}));
  EXPECT_EQ(kernels_.find({kernel, nullptr}), known(function));
  EXPECT_FALSE(known(stranger));
}

TEST_F(KernelCatalogueTest, WithItsImageAKernelGoes) {
  const ModuleRef module = load(), other = load();
  const FunctionRef gone = find(module, "fill"), stays = find(other, "fill");
  kernels_.forget_image(module.get());
  EXPECT_FALSE(known(gone));
  EXPECT_TRUE(known(stays));
  EXPECT_FALSE(known(find(module, "late")));
}

TEST_F(KernelCatalogueTest, WhatIsWhereAnotherWasIsNotTakenForIt) {
  const ModuleRef module = load();
  Function place;
  const auto at_place = [&] { return FunctionRef(&place, [](Function*) {}); };
  FunctionRef function = at_place();
  kernels_.function_found(module, "fill", function);
  EXPECT_TRUE(known(function));
  function = nullptr;
  EXPECT_FALSE(known(at_place()));
}

TEST_F(KernelCatalogueTest, AttributesThatAreSetAreCounted) {
  const ModuleRef module = load();
  const FunctionRef set = find(module, "fill");
  kernels_.attribute_set({nullptr, set});
  kernels_.attribute_set({nullptr, std::make_shared<Function>()});
  EXPECT_EQ(known(set)->attributes, 1u);
}

TEST_F(KernelCatalogueTest, VariantsGoWithTheirContext) {
  const ModuleRef module = load();
  const FunctionRef function = find(module, "fill");
  const auto context = std::make_shared<Context>(), other = std::make_shared<Context>();
  const auto place = [&](const ContextRef& where, KernelVariant variant) {
    const KnownKernelRef found = known(function);
    return found->clone_place({found->image, found->name, {}, where, true, variant}).second;
  };
  EXPECT_TRUE(place(context, KernelVariant::kSliced));
  EXPECT_FALSE(place(context, KernelVariant::kSliced));
  EXPECT_TRUE(place(context, KernelVariant::kPersistent));
  EXPECT_TRUE(place(other, KernelVariant::kSliced));
  kernels_.forget_context(context.get());
  EXPECT_TRUE(place(context, KernelVariant::kSliced));
  EXPECT_FALSE(place(other, KernelVariant::kSliced));
}

TEST_F(KernelCatalogueTest, WhereNothingIsCutItStaysEmpty) {
  KernelCatalogue none(&cloner_, [] { return false; });
  const auto module = std::make_shared<Module>();
  const auto function = std::make_shared<Function>();
  none.module_loaded(module, {});
  none.function_found(module, "fill", function);
  EXPECT_FALSE(none.find({nullptr, function}));
}

}  // namespace
}  // namespace bandsaw::runner
