package differential;

import org.apache.flink.api.common.serialization.SerializerConfigImpl;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.streaming.api.operators.StreamOperatorFactory;
import org.apache.flink.streaming.api.operators.TwoInputStreamOperator;
import org.apache.flink.streaming.api.transformations.OneInputTransformation;
import org.apache.flink.streaming.api.transformations.TwoInputTransformation;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.streaming.util.AbstractStreamOperatorTestHarness;
import org.apache.flink.streaming.util.KeyedOneInputStreamOperatorTestHarness;
import org.apache.flink.streaming.util.KeyedTwoInputStreamOperatorTestHarness;
import org.apache.flink.streaming.util.OneInputStreamOperatorTestHarness;
import org.apache.flink.util.InstantiationUtil;

/** Operators in harnesses. Each is a copy, as a task would have it. */
final class Operators {
    private Operators() {}

    /** Between two tasks: records are written and read, after which rows have the form that operators behind rely on. */
    @SuppressWarnings("unchecked")
    static Pipeline.Node exchange(TypeInformation<?> type) {
        TypeSerializer<Object> serializer = (TypeSerializer<Object>) type.createSerializer(new SerializerConfigImpl());
        return new Pipeline.Node() {
            @Override
            void take(int input, Object element) throws Exception {
                if (!(element instanceof StreamRecord<?>)) {
                    pass(element);
                    return;
                }
                StreamRecord<Object> record = (StreamRecord<Object>) element;
                byte[] written = InstantiationUtil.serializeToByteArray(serializer, record.getValue());
                pass(record.copy(InstantiationUtil.deserializeFromByteArray(serializer, written)));
            }
        };
    }

    static Pipeline.Node one(OneInputTransformation<Object, Object> of) throws Exception {
        ClassLoader loader = Operators.class.getClassLoader();
        StreamOperatorFactory<Object> factory = InstantiationUtil.clone(of.getOperatorFactory(), loader);
        @SuppressWarnings("unchecked")
        KeySelector<Object, Object> key = (KeySelector<Object, Object>) of.getStateKeySelector();
        @SuppressWarnings("unchecked")
        TypeInformation<Object> keyType = (TypeInformation<Object>) of.getStateKeyType();
        OneInputStreamOperatorTestHarness<Object, Object> harness = key == null
                ? new OneInputStreamOperatorTestHarness<>(factory, 1, 1, 0)
                : new KeyedOneInputStreamOperatorTestHarness<>(
                        factory, InstantiationUtil.clone(key, loader), keyType, 1, 1, 0);
        return new InHarness(harness, of.getOutputType()) {
            @Override
            @SuppressWarnings("unchecked")
            void give(int input, Object element) throws Exception {
                if (element instanceof Watermark watermark) {
                    harness.processWatermark(watermark);
                } else {
                    harness.processElement((StreamRecord<Object>) element);
                }
            }
        };
    }

    @SuppressWarnings("unchecked")
    static Pipeline.Node two(TwoInputTransformation<Object, Object, Object> of) throws Exception {
        ClassLoader loader = Operators.class.getClassLoader();
        TwoInputStreamOperator<Object, Object, Object> operator = InstantiationUtil.clone(of.getOperator(), loader);
        KeyedTwoInputStreamOperatorTestHarness<Object, Object, Object, Object> harness =
                new KeyedTwoInputStreamOperatorTestHarness<>(
                        operator,
                        (KeySelector<Object, Object>) InstantiationUtil.clone(of.getStateKeySelector1(), loader),
                        (KeySelector<Object, Object>) InstantiationUtil.clone(of.getStateKeySelector2(), loader),
                        (TypeInformation<Object>) of.getStateKeyType());
        return new InHarness(harness, of.getOutputType()) {
            @Override
            void give(int input, Object element) throws Exception {
                if (element instanceof Watermark watermark) {
                    if (input == 0) {
                        harness.processWatermark1(watermark);
                    } else {
                        harness.processWatermark2(watermark);
                    }
                } else if (input == 0) {
                    harness.processElement1((StreamRecord<Object>) element);
                } else {
                    harness.processElement2((StreamRecord<Object>) element);
                }
            }
        };
    }

    /** An open operator, whose output goes on as it comes. */
    private abstract static class InHarness extends Pipeline.Node {
        private final AbstractStreamOperatorTestHarness<Object> harness;

        InHarness(AbstractStreamOperatorTestHarness<Object> harness, TypeInformation<Object> made) throws Exception {
            this.harness = harness;
            TypeSerializer<Object> serializer = made.createSerializer(harness.getExecutionConfig().getSerializerConfig());
            harness.setup(serializer);
            harness.open();
        }

        abstract void give(int input, Object element) throws Exception;

        @Override
        final void take(int input, Object element) throws Exception {
            if (!(element instanceof Watermark) && !(element instanceof StreamRecord<?>)) {
                return; // a status of the stream, which no query looks at
            }
            give(input, element);
            for (Object next = harness.getOutput().poll(); next != null; next = harness.getOutput().poll()) {
                pass(next);
            }
        }

        @Override
        void end() throws Exception {
            harness.close();
        }
    }
}
