"""Found by Spark itself: any top-level module ``pyspark_*`` may offer a data source to every session.

So ``format("lading")`` works without ``lading.spark.register(spark)``, except for the header functions.
"""

from lading.spark.source import LadingSource as DefaultSource

__all__ = ["DefaultSource"]
