import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/**
 * Signs requests as RocketMQ's own clients do. Each line of the input is one: access key, secret key, security token,
 * body, and then name and value of each ext field, all in hexadecimal of UTF-8 and parted by tabs; a token that is empty
 * is none. The answer to each is a line of its own, the word signature and, behind a tab, the signature.
 */
public class Sign {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] parts = line.split("\t", -1);
            SessionCredentials credentials = new SessionCredentials(text(parts[0]), text(parts[1]));
            if (!parts[2].isEmpty()) {
                credentials.setSecurityToken(text(parts[2]));
            }
            RemotingCommand request = RemotingCommand.createRequestCommand(28, null);
            for (int at = 4; at + 1 < parts.length; at += 2) {
                request.addExtField(text(parts[at]), text(parts[at + 1]));
            }
            if (!parts[3].isEmpty()) {
                request.setBody(HexFormat.of().parseHex(parts[3]));
            }
            new AclClientRPCHook(credentials).doBeforeRequest("", request);
            System.out.println("signature\t" + request.getExtFields().get("Signature"));
        }
    }

    private static String text(String hexadecimal) {
        return new String(HexFormat.of().parseHex(hexadecimal), StandardCharsets.UTF_8);
    }
}
