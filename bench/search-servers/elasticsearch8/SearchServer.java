import java.nio.file.Path;
import java.util.Map;
import java.util.Set;
import org.elasticsearch.common.logging.LogConfigurator;
import org.elasticsearch.common.settings.Settings;
import org.elasticsearch.env.Environment;
import org.elasticsearch.node.InternalSettingsPreparer;
import org.elasticsearch.node.Node;
import org.elasticsearch.plugins.PluginsLoader;

/** A node on this machine: SearchServer HOME PORT [setting=value]... It ends with the process. */
public final class SearchServer {
    public static void main(String[] arguments) throws Exception {
        LogConfigurator.configureESLogging();
        Path home = Path.of(arguments[0]).toAbsolutePath();
        Settings.Builder settings = Settings.builder()
            .put("path.home", home.toString())
            .put("http.port", arguments[1])
            .put("transport.port", "0")
            .put("network.host", "127.0.0.1")
            .put("discovery.type", "single-node");
        for (int next = 2; next < arguments.length; next++) {
            String[] pair = arguments[next].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        Environment environment = InternalSettingsPreparer.prepareEnvironment(
            settings.build(), Map.of(), home.resolve("config"), () -> "one");
        PluginsLoader plugins = PluginsLoader.createPluginsLoader(
            PluginsLoader.loadModulesBundles(environment.modulesDir()), Set.of(), Map.of(), false);
        new Node(environment, plugins).start();
        Thread.currentThread().join();
    }
}
