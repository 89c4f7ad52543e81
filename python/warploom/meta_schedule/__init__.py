"""MetaSchedule for products: design space, builder, runner, cost model, databases.

Names and forms are those of ``tvm.s_tir.meta_schedule``, whose tuning functions take them::

    from warploom import meta_schedule as wms
    ms.tune_tir(mod, target, work_dir, 64, space=wms.Space(), builder=wms.Builder(),
                runner=wms.Runner())
"""

from warploom.meta_schedule.builder import Builder
from warploom.meta_schedule.estimates import EstimateBuilder, EstimateRunner, estimate_target
from warploom.meta_schedule.runner import Runner
from warploom.meta_schedule.space import Space

__all__ = ["Builder", "EstimateBuilder", "EstimateRunner", "Runner", "Space", "estimate_target"]
