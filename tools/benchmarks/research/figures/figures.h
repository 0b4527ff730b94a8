// Figures of the papers that are remade in simulation: production's own policies, planners and choices, on simulated
// engines and GPUs.
#pragma once

#include <string>
#include <vector>

namespace bandsaw::research {

// One value of a figure: which line or bar, at what place of the axis.
struct FigureValue {
  std::string series, at;
  double value = 0;
};
using FigureValues = std::vector<FigureValue>;

FigureValues gdev_10();
FigureValues gdev_14();
FigureValues kernelet_6();
FigureValues kernelet_7(int schedules);
FigureValues kernelet_8();
FigureValues kernelet_9();
FigureValues cruz_tables();
FigureValues bashizade_10();
FigureValues bashizade_11();
FigureValues maestro_10();
FigureValues maestro_13();
FigureValues maestro_15();
FigureValues chimera_bounds();       // figures 4.5, 4.6 and 4.7, by bound
FigureValues chimera_idempotence();  // figure 4.8

}  // namespace bandsaw::research
