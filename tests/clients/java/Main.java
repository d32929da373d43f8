import io.fabric8.kubernetes.api.model.ConfigMap;
import io.fabric8.kubernetes.api.model.ConfigMapBuilder;
import io.fabric8.kubernetes.api.model.ConfigMapList;
import io.fabric8.kubernetes.api.model.ListOptionsBuilder;
import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.KubernetesClientException;
import io.fabric8.kubernetes.client.dsl.AnyNamespaceOperation;
import io.fabric8.kubernetes.client.dsl.Resource;
import io.fabric8.kubernetes.client.informers.ResourceEventHandler;
import io.fabric8.kubernetes.client.informers.SharedIndexInformer;
import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/**
 * fabric8's informer over config maps, as tests/clients/go/cmd/informer is client-go's: the same lines on stdout, the same orders on
 * stdin, and "create NAME", which makes a config map in the namespace.
 */
public final class Main {
  private final KubernetesClient client;
  private final String namespace;

  private Main(KubernetesClient client, String namespace) {
    this.client = client;
    this.namespace = namespace;
  }

  public static void main(String[] args) throws IOException {
    File kubeconfig = new File(Objects.requireNonNull(flag(args, "kubeconfig"), "--kubeconfig="));
    Config config = Config.fromKubeconfig(kubeconfig);
    try (KubernetesClient client = new KubernetesClientBuilder().withConfig(config).build()) {
      new Main(client, flag(args, "namespace")).run();
    }
  }

  private static String flag(String[] args, String name) {
    String begin = "--" + name + "=";
    for (String arg : args) {
      if (arg.startsWith(begin)) {
        return arg.substring(begin.length());
      }
    }
    return null;
  }

  private void run() throws IOException {
    SharedIndexInformer<ConfigMap> informer = configMaps().runnableInformer(0);
    informer.addEventHandler(new Printer());
    // As a controller that goes on whatever happens.
    informer.exceptionHandler((isStarted, error) -> {
      System.err.println("informer: " + error);
      return true;
    });
    informer.start().thenRun(() -> print(new LinkedHashMap<>(Map.of("type", "SYNCED"))));
    BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = orders.readLine(); line != null; line = orders.readLine()) {
      String[] order = line.split(" ");
      switch (order[0]) {
        case "dump" -> print(dump(informer));
        case "list" -> print(list(null));
        case "pages" -> print(list(Long.valueOf(order[1])));
        case "create" -> print(create(order[1]));
        default -> throw new IllegalArgumentException("no such order: " + line);
      }
    }
    informer.stop();
  }

  private AnyNamespaceOperation<ConfigMap, ConfigMapList, Resource<ConfigMap>> configMaps() {
    return namespace == null ? client.configMaps().inAnyNamespace() : client.configMaps().inNamespace(namespace);
  }

  private static Map<String, Object> dump(SharedIndexInformer<ConfigMap> informer) {
    Map<String, Object> items = new LinkedHashMap<>();
    informer.getStore().list().forEach(object -> items.put(key(object), item(object)));
    return line("DUMP", Map.of("items", items));
  }

  private Map<String, Object> list(Long limit) {
    List<Object> items = new ArrayList<>();
    List<Object> revisions = new ArrayList<>();
    try {
      String next = null;
      do {
        ConfigMapList page = configMaps().list(new ListOptionsBuilder().withLimit(limit).withContinue(next).build());
        page.getItems().forEach(object -> items.add(item(object)));
        revisions.add(page.getMetadata().getResourceVersion());
        next = page.getMetadata().getContinue();
      } while (next != null && !next.isEmpty());
      return line("LIST", Map.of("items", items, "revisions", revisions));
    } catch (KubernetesClientException error) {
      return line("LIST", Map.of("error", String.valueOf(error.getMessage())));
    }
  }

  private Map<String, Object> create(String name) {
    ConfigMap wanted = new ConfigMapBuilder().withNewMetadata().withName(name).endMetadata().addToData("by", "fabric8").build();
    try {
      return line("CREATE", item(client.configMaps().inNamespace(namespace).resource(wanted).create()));
    } catch (KubernetesClientException error) {
      return line("CREATE", Map.of("error", String.valueOf(error.getMessage())));
    }
  }

  private static String key(ConfigMap object) {
    return object.getMetadata().getNamespace() + "/" + object.getMetadata().getName();
  }

  private static Map<String, Object> item(ConfigMap object) {
    Map<String, Object> item = new LinkedHashMap<>();
    item.put("key", key(object));
    item.put("rv", object.getMetadata().getResourceVersion());
    item.put("uid", object.getMetadata().getUid());
    item.put("data", object.getData());
    return item;
  }

  private static Map<String, Object> line(String type, Map<String, ?> fields) {
    Map<String, Object> line = new LinkedHashMap<>();
    line.put("type", type);
    line.putAll(fields);
    return line;
  }

  /** Handlers and orders run on different threads. */
  private synchronized void print(Map<String, Object> line) {
    System.out.println(client.getKubernetesSerialization().asJson(line));
  }

  /** Prints what reaches a handler. */
  private final class Printer implements ResourceEventHandler<ConfigMap> {
    @Override
    public void onAdd(ConfigMap object) {
      print(line("ADD", item(object)));
    }

    @Override
    public void onUpdate(ConfigMap before, ConfigMap object) {
      Map<String, Object> line = line("UPDATE", item(object));
      line.put("changed", !withoutRevision(before).equals(withoutRevision(object)));
      print(line);
    }

    @Override
    public void onDelete(ConfigMap object, boolean isStateUnknown) {
      print(line("DELETE", item(object)));
    }

    private ConfigMap withoutRevision(ConfigMap object) {
      return new ConfigMapBuilder(object).editMetadata().withResourceVersion(null).withManagedFields().endMetadata().build();
    }
  }
}
