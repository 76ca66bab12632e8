import org.apache.spark.sql.SparkSession;

/** Prints a table's schema and rows as JSON, read by Spark and a package for its format: FORMAT PLACE ORDER SETTING=VALUE… */
public class ReadTable {
    public static void main(String[] arguments) throws Exception {
        SparkSession.Builder builder = SparkSession.builder().master("local[1]")
            .config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1").config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.shuffle.partitions", "1");
        for (int at = 3; at < arguments.length; at++) {
            String[] setting = arguments[at].split("=", 2);
            builder = builder.config(setting[0], setting[1]);
        }
        try (SparkSession spark = builder.getOrCreate()) {
            var table = spark.read().format(arguments[0]).load(arguments[1]);
            System.out.println("schema " + table.schema().json());
            for (String row : table.orderBy(arguments[2]).toJSON().collectAsList()) {
                System.out.println("row " + row);
            }
        }
    }
}
