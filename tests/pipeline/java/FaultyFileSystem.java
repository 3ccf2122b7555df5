import java.io.IOException;
import java.lang.reflect.Constructor;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

/**
 * A local disk that fails where it is told to, for tests. System properties say where: logtwin.fault.on is a regular
 * expression of "operation path" (rename with the new path, list, open, create), logtwin.fault.times how often (-1: for
 * ever), logtwin.fault.class what is thrown, logtwin.fault.after = true once the operation has been done.
 */
public class FaultyFileSystem extends LocalFileSystem {
    private static synchronized void fail(String operation, Path path, boolean isDone) throws IOException {
        String on = System.getProperty("logtwin.fault.on", "");
        int times = Integer.getInteger("logtwin.fault.times", 0);
        boolean isAfter = Boolean.getBoolean("logtwin.fault.after");
        if (times == 0 || on.isEmpty() || isAfter != isDone || !(operation + " " + path).matches(on)) {
            return;
        }
        System.setProperty("logtwin.fault.times", String.valueOf(times - 1));
        int hit = Integer.getInteger("logtwin.fault.hits", 0);
        System.setProperty("logtwin.fault.hits", String.valueOf(hit + 1));
        String kind = System.getProperty("logtwin.fault.class", "java.net.SocketTimeoutException");
        IOException error;
        try {
            Constructor<?> made = Class.forName(kind).getConstructor(String.class);
            error = (IOException) made.newInstance("made by a test: " + operation);
        } catch (ReflectiveOperationException impossible) {
            throw new IllegalStateException(impossible);
        }
        throw error;
    }

    @Override
    public boolean rename(Path from, Path to) throws IOException {
        fail("rename", to, false);
        boolean isRenamed = super.rename(from, to);
        fail("rename", to, true);
        return isRenamed;
    }

    @Override
    public FileStatus[] listStatus(Path path) throws IOException {
        fail("list", path, false);
        FileStatus[] found = super.listStatus(path);
        fail("list", path, true);
        return found;
    }

    @Override
    public FSDataInputStream open(Path path, int bufferSize) throws IOException {
        fail("open", path, false);
        return super.open(path, bufferSize);
    }

    @Override
    public FSDataOutputStream create(
            Path path, FsPermission mode, boolean over, int buffer, short copies, long block, Progressable progress)
            throws IOException {
        fail("create", path, false);
        return super.create(path, mode, over, buffer, copies, block, progress);
    }
}
