"""MetaSchedule for GEMMs: design space, builder, runner, cost model, databases.

Names and forms are those of ``tvm.s_tir.meta_schedule``, whose tuning functions take them::

    from warploom import meta_schedule as wms
    ms.tune_tir(mod, target, work_dir, 64, space=wms.Space(), builder=wms.Builder(),
                runner=wms.Runner(), cost_model=wms.CostModel(),
                strategy=wms.Unmeasured(), database=wms.open_database(work_dir))

:func:`tune_tir` does that, and goes on with a search that was interrupted.
"""

from warploom.meta_schedule.builder import Builder
from warploom.meta_schedule.cost_model import CostModel
from warploom.meta_schedule.database import merge, open_database, recover
from warploom.meta_schedule.early_stop import EarlyStop
from warploom.meta_schedule.estimates import (
    EstimateBuilder,
    EstimateRunner,
    estimate_module,
    estimate_target,
)
from warploom.meta_schedule.fleet import FleetRunner
from warploom.meta_schedule.journal import Journal
from warploom.meta_schedule.lookup import Found, Lookup
from warploom.meta_schedule.package_records import Shipped, shipped
from warploom.meta_schedule.progress import Progress
from warploom.meta_schedule.runner import Runner
from warploom.meta_schedule.space import Space
from warploom.meta_schedule.tune import tune_tir
from warploom.meta_schedule.unmeasured import Unmeasured

__all__ = [
    "Builder",
    "CostModel",
    "EarlyStop",
    "EstimateBuilder",
    "EstimateRunner",
    "FleetRunner",
    "Found",
    "Journal",
    "Lookup",
    "Progress",
    "Runner",
    "Shipped",
    "Space",
    "Unmeasured",
    "estimate_module",
    "estimate_target",
    "merge",
    "open_database",
    "recover",
    "shipped",
    "tune_tir",
]
