import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.elasticsearch.common.settings.Settings;
import org.elasticsearch.node.InternalSettingsPreparer;
import org.elasticsearch.node.Node;
import org.elasticsearch.transport.Netty4Plugin;

/** A node on this machine: SearchServer HOME PORT [setting=value]... It ends with the process. */
public final class SearchServer extends Node {
    private SearchServer(Settings settings) {
        super(InternalSettingsPreparer.prepareEnvironment(settings, Map.of(), null, () -> "one"), List.of(Netty4Plugin.class), false);
    }

    public static void main(String[] arguments) throws Exception {
        Settings.Builder settings = Settings.builder()
            .put("path.home", Path.of(arguments[0]).toAbsolutePath().toString())
            .put("http.port", arguments[1])
            .put("transport.port", "0")
            .put("network.host", "127.0.0.1")
            .put("discovery.type", "single-node")
            .put("http.type", "netty4")
            .put("transport.type", "netty4");
        for (int next = 2; next < arguments.length; next++) {
            String[] pair = arguments[next].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        new SearchServer(settings.build()).start();
        Thread.currentThread().join();
    }
}
